package watcher

import (
	"fmt"
	"slices"

	"monopod/internal/model"
	"monopod/manifests/decode"
)

// WithoutOwned drops documents whose controller is in another input of the same source, and notes that in the reports. Sources do not see
// each other here: a document of one must not remove a pod of another.
func (set Set) WithoutOwned() Set {
	pods, workloads, dropped := decode.DropOwned(set.Pods, set.Workloads)
	if len(dropped) == 0 {
		return set
	}
	set.Pods, set.Workloads = pods, workloads
	by := map[string]*ownedHere{}
	for _, o := range dropped {
		h := by[o.Origin.File]
		if h == nil {
			h = &ownedHere{pods: map[string]bool{}, objects: map[string]bool{}}
			by[o.Origin.File] = h
		}
		h.add(o)
	}
	for i := range set.Inputs {
		if h := by[set.Inputs[i].Input]; h != nil {
			set.Inputs[i] = h.report(set.Inputs[i])
		}
	}
	return set
}

// ownedHere is what one input does not contribute.
type ownedHere struct {
	pods, objects map[string]bool
	notes         []string
	more          int
}

func (h *ownedHere) add(o decode.Owned) {
	if o.ID.Kind == "Pod" {
		h.pods[o.ID.Namespace+"/"+o.ID.Name] = true
	} else {
		h.objects[o.ID.String()] = true
	}
	if len(h.notes) == MaxReasons {
		h.more++
		return
	}
	h.notes = append(h.notes, o.Note().Error())
}

func (h *ownedHere) report(r model.Input) model.Input {
	r.Pods, r.Objects = without(r.Pods, h.pods), without(r.Objects, h.objects)
	if r.State != model.InputAccepted {
		return r
	}
	r.Errors = append(slices.Clip(r.Errors), h.notes...)
	if h.more > 0 {
		r.Errors = append(r.Errors, fmt.Sprintf("and %d more", h.more))
	}
	if len(r.Pods)+len(r.Objects) == 0 {
		r.State = model.InputIgnored
	}
	return r
}

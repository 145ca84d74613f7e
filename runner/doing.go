package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	"monopod/manifests"
)

// Doing is an action that the runtime is carrying out.
type Doing struct {
	Kind ActionKind
	// Container is the one that it is about; empty: it is about the pod.
	Container string
	// Phase is the part of the action that is under way; empty: this is about the action as a whole. The network is set up while other
	// actions are carried out.
	Phase string
	// Since is when it began, by the machine's clock.
	Since time.Time
}

// doings are the actions of a pod that the runtime has not answered yet. The zero value has none.
type doings struct {
	mu  sync.Mutex
	all []*Doing
}

// begin notes an action until the function that it returns is called, and its phases, by the context that it returns.
func (d *doings) begin(ctx context.Context, a Action, now func() time.Time) (_ context.Context, end func()) {
	of := Doing{Kind: a.Kind, Container: a.Container, Since: now()}
	ctx = withBegin(ctx, func(phase string) func() {
		part := of
		part.Phase, part.Since = phase, now()
		return d.add(&part)
	})
	return ctx, d.add(&of)
}

func (d *doings) add(one *Doing) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.all = slices.DeleteFunc(d.all, func(o *Doing) bool { return o == one })
	}
}

// list returns them, the oldest first.
func (d *doings) list() []Doing {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Doing
	for _, one := range d.all {
		all = append(all, *one)
	}
	return all
}

// endedBy finds what ended the last instances of containers that did not end by themselves.
func (s *statusBuilder) endedBy() map[string]EndedBy {
	var all map[string]EndedBy
	for spec := range manifests.AllContainers(&s.pod.Spec) {
		c := shownInstance(s.Containers, spec.Name)
		if c == nil {
			continue
		}
		end := c.ending()
		if end == nil {
			end = c.Last
		}
		if end == nil || end.By == "" {
			continue
		}
		if all == nil {
			all = map[string]EndedBy{}
		}
		all[spec.Name] = end.By
	}
	return all
}

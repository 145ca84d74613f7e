package watcher

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/model"
	"monopod/manifests"
)

// Merge folds the last Set of each source into one Desired. Sources win over those behind them in order; sources
// that order does not name come last, by name. It is pure and deterministic.
func Merge(order []string, sets map[string]Set) model.Desired {
	d := model.Desired{Order: order, Reported: map[string]bool{}, Partial: map[string]bool{}, Unknown: map[string][]string{}}
	pods, reports, filled := 0, 0, 0
	for _, set := range sets {
		pods, reports = pods+len(set.Pods), reports+len(set.Inputs)
		if len(set.Pods)+len(set.Objects)+len(set.Workloads) > 0 {
			filled++
		}
	}
	own := NewOwners(pods)
	d.Pods, d.Inputs = make([]*manifests.Pod, 0, pods), make([]model.Input, 0, reports)
	for _, name := range precedence(order, sets) {
		set := sets[name]
		if !set.Unread {
			d.Reported[name] = true
		}
		if set.Partial {
			d.Partial[name] = true
		}
		if len(set.Unknown) > 0 {
			d.Unknown[name] = set.Unknown
		}
		if filled > 1 || !set.Distinct {
			claimed, lost := own.Claim(set)
			set = claimed
			d.Overridden.Pods = append(d.Overridden.Pods, lost.Pods...)
			d.Overridden.Objects = append(d.Overridden.Objects, lost.Objects...)
		}
		d.Pods = append(d.Pods, set.Pods...)
		d.Objects = append(d.Objects, set.Objects...)
		d.Workloads = append(d.Workloads, set.Workloads...)
		d.Inputs = append(d.Inputs, set.Inputs...)
	}
	return d
}

// precedence returns the names of all sets, those named in order first.
func precedence(order []string, sets map[string]Set) []string {
	names := make([]string, 0, len(sets))
	for _, name := range slices.Concat(order, slices.Sorted(maps.Keys(sets))) {
		if _, ok := sets[name]; ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Owners knows where each pod and object that has got its place was written.
type Owners struct {
	pods    map[manifests.Key]manifests.Origin
	objects map[manifests.ObjectID]manifests.Origin
}

// NewOwners returns Owners for about n pods.
func NewOwners(pods int) Owners {
	return Owners{pods: make(map[manifests.Key]manifests.Origin, pods), objects: map[manifests.ObjectID]manifests.Origin{}}
}

// Claim adds the content of set to the owners. Returns the set reduced to what it could claim, with the conflicts of the rest in its reports,
// and the rest. Slices of the set are replaced, not changed.
func (o Owners) Claim(set Set) (Set, model.Overridden) {
	pods := make([]*manifests.Pod, 0, len(set.Pods))
	c := conflicts{reports: set.Inputs}
	for _, p := range set.Pods {
		key := p.Key()
		if owner, taken := o.pods[key]; taken {
			name := key.String()
			r := c.on(p.Origin)
			r.pods[name] = true
			r.add(p.Origin, "Pod", name, owner)
			c.lost.Pods = append(c.lost.Pods, p)
			continue
		}
		o.pods[key] = p.Origin
		pods = append(pods, p)
	}
	set.Pods = pods
	set.Objects = o.claimObjects(set.Objects, &c)
	set.Workloads = o.claimObjects(set.Workloads, &c)
	set.Inputs = c.merged()
	return set, c.lost
}

func (o Owners) claimObjects(objects []*manifests.Object, c *conflicts) []*manifests.Object {
	var got []*manifests.Object
	for _, obj := range objects {
		if owner, taken := o.objects[obj.ID()]; taken {
			r := c.on(obj.Origin)
			r.objects[obj.String()] = true
			r.add(obj.Origin, obj.Kind, strings.TrimPrefix(obj.String(), obj.Kind+" "), owner)
			c.lost.Objects = append(c.lost.Objects, obj)
			continue
		}
		o.objects[obj.ID()] = obj.Origin
		got = append(got, obj)
	}
	return got
}

// conflicts collects what reports of a set have to add.
type conflicts struct {
	reports []model.Input
	byInput map[string]*conflict
	// inputs are those of byInput in the order in which they came.
	inputs []manifests.Origin
	// lost is what the inputs do not contribute.
	lost model.Overridden
}

// conflict is what an input does not contribute, by the names of pods and of objects, and why.
type conflict struct {
	pods, objects map[string]bool
	// errors are the first of all; more is how many there are besides.
	errors []model.Problem
	more   int
}

// lines are the texts of errors.
func (c *conflict) lines() []string {
	var all []string
	for i := range c.errors {
		all = append(all, c.errors[i].Text)
	}
	return all
}

// add adds a reason. There may be as many as an input has objects.
func (c *conflict) add(at manifests.Origin, kind, name string, owner manifests.Origin) {
	if len(c.errors) == MaxReasons {
		c.more++
		return
	}
	what := kind + " " + name
	if kind == "Pod" {
		what = "pod " + name
	}
	c.errors = append(c.errors, model.Problem{Text: conflictLine(at, what, owner), Error: manifests.Error{
		File: at.File, Line: at.Line, Kind: kind, Pod: name, Type: field.ErrorTypeDuplicate,
		Msg: "already defined in " + place(owner), Hint: "rename or remove one of them",
	}})
}

// on returns the conflict of the input at that origin, and creates it on first use.
func (c *conflicts) on(at manifests.Origin) *conflict {
	r := c.byInput[at.File]
	if r == nil {
		if c.byInput == nil {
			c.byInput = map[string]*conflict{}
		}
		r = &conflict{pods: map[string]bool{}, objects: map[string]bool{}}
		c.byInput[at.File] = r
		c.inputs = append(c.inputs, at)
	}
	return r
}

// merged returns the reports with the conflicts in them; a report is added for an input that has none.
func (c *conflicts) merged() []model.Input {
	if len(c.inputs) == 0 {
		return c.reports
	}
	all := slices.Clone(c.reports)
	at := make(map[string]int, len(all))
	for i := range all {
		if _, double := at[all[i].Input]; !double {
			at[all[i].Input] = i
		}
	}
	for _, o := range c.inputs {
		i, there := at[o.File]
		if !there {
			i = len(all)
			all = append(all, model.Input{Source: o.Source, Input: o.File, State: model.InputAccepted})
		}
		r, was := &all[i], c.byInput[o.File]
		if r.State == model.InputAccepted {
			r.State = model.InputConflict
		}
		r.Errors, r.Problems = slices.Concat(r.Errors, was.lines()), slices.Concat(r.Problems, was.errors)
		if was.more > 0 {
			r.Errors = append(r.Errors, fmt.Sprintf("and %d more", was.more))
		}
		r.Pods, r.Objects = without(r.Pods, was.pods), without(r.Objects, was.objects)
	}
	return all
}

// without returns a list of names without some; it is list itself if none is there.
func without(list []string, some map[string]bool) []string {
	if len(some) == 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return some[s] })
}

func conflictLine(at manifests.Origin, what string, owner manifests.Origin) string {
	return fmt.Sprintf("%s: %s is already defined in %s; rename or remove one of them", place(at), what, place(owner))
}

// place prints an origin as file:line.
func place(o manifests.Origin) string {
	if o.Line > 0 {
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return o.File
}

// same compares by identity first: sources hand out the same pointers as long as an input does not change.
func same[T any](a, b []*T) bool {
	return slices.EqualFunc(a, b, func(p, q *T) bool { return p == q || reflect.DeepEqual(p, q) })
}

// SameReport reports whether two reports differ only in their times.
func SameReport(a, b model.Input) bool {
	return a.Source == b.Source && a.Input == b.Input && a.State == b.State && a.Cause == b.Cause && a.Since.Equal(b.Since) && a.FromDisk.Equal(b.FromDisk) &&
		slices.Equal(a.Errors, b.Errors) && slices.Equal(a.Mistaken, b.Mistaken) && slices.Equal(a.Pods, b.Pods) && slices.Equal(a.Objects, b.Objects)
}

// SameSet reports whether nothing that matters differs between two sets.
func SameSet(a, b Set) bool {
	return a.Source == b.Source && a.Unread == b.Unread && a.Partial == b.Partial && slices.Equal(a.Unknown, b.Unknown) &&
		same(a.Pods, b.Pods) && same(a.Objects, b.Objects) && same(a.Workloads, b.Workloads) &&
		slices.EqualFunc(a.Inputs, b.Inputs, SameReport)
}

func sameDesired(a, b model.Desired) bool {
	return a.SameRead(b) &&
		same(a.Pods, b.Pods) && same(a.Objects, b.Objects) && same(a.Workloads, b.Workloads) &&
		same(a.Overridden.Pods, b.Overridden.Pods) && same(a.Overridden.Objects, b.Overridden.Objects) &&
		slices.EqualFunc(a.Inputs, b.Inputs, SameReport)
}

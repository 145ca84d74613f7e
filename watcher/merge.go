package watcher

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"monopod/manifests"
)

// Merge folds the last Set of each source into one Desired. Sources win over those behind them in order; sources
// that order does not name come last, by name. It is pure and deterministic.
func Merge(order []string, sets map[string]Set) Desired {
	d := Desired{Order: order, Reported: map[string]bool{}, Unknown: map[string][]string{}}
	own := newOwners(0)
	for _, name := range precedence(order, sets) {
		set := sets[name]
		if !set.Unread {
			d.Reported[name] = true
		}
		if len(set.Unknown) > 0 {
			d.Unknown[name] = set.Unknown
		}
		set = own.claim(set)
		d.Pods = append(d.Pods, set.Pods...)
		d.Objects = append(d.Objects, set.Objects...)
		d.Workloads = append(d.Workloads, set.Workloads...)
		d.Reports = append(d.Reports, set.Reports...)
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

// owners knows where each pod and object that has got its place was written.
type owners struct {
	pods    map[manifests.Key]manifests.Origin
	objects map[manifests.ObjectID]manifests.Origin
}

func newOwners(pods int) owners {
	return owners{pods: make(map[manifests.Key]manifests.Origin, pods), objects: map[manifests.ObjectID]manifests.Origin{}}
}

// claim enters the content of set and returns the set with what got its place, and with reports that tell of what did
// not. Slices of the set are replaced, not changed.
func (o owners) claim(set Set) Set {
	pods := make([]*manifests.Pod, 0, len(set.Pods))
	set.Reports = slices.Clone(set.Reports)
	for _, p := range set.Pods {
		owner, taken := o.pods[p.Key()]
		if !taken {
			o.pods[p.Key()] = p.Origin
			pods = append(pods, p)
			continue
		}
		r := conflicting(&set.Reports, p.Origin)
		r.Errors = append(slices.Clone(r.Errors), conflictLine(p.Origin, "pod "+p.Key().String(), owner))
		r.Pods = without(r.Pods, p.Key().String())
	}
	set.Pods = pods
	set.Objects = o.claimObjects(set.Objects, &set.Reports)
	set.Workloads = o.claimObjects(set.Workloads, &set.Reports)
	return set
}

func (o owners) claimObjects(objects []*manifests.Object, reports *[]Report) []*manifests.Object {
	var got []*manifests.Object
	for _, obj := range objects {
		owner, taken := o.objects[obj.ID()]
		if !taken {
			o.objects[obj.ID()] = obj.Origin
			got = append(got, obj)
			continue
		}
		r := conflicting(reports, obj.Origin)
		r.Errors = append(slices.Clone(r.Errors), conflictLine(obj.Origin, obj.String(), owner))
		r.Objects = without(r.Objects, obj.String())
	}
	return got
}

// conflicting returns the report on the input written at, now in conflict; one is added if there is none.
func conflicting(reports *[]Report, at manifests.Origin) *Report {
	i := slices.IndexFunc(*reports, func(r Report) bool { return r.Input == at.File })
	if i < 0 {
		*reports = append(*reports, Report{Source: at.Source, Input: at.File, State: Accepted})
		i = len(*reports) - 1
	}
	r := &(*reports)[i]
	if r.State == Accepted {
		r.State = Conflict
	}
	return r
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}

func conflictLine(at manifests.Origin, what string, owner manifests.Origin) string {
	return fmt.Sprintf("%s: %s is already defined in %s; give one of them another name or remove it", place(at), what, place(owner))
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

func sameReport(a, b Report) bool {
	return a.Source == b.Source && a.Input == b.Input && a.State == b.State && a.Since.Equal(b.Since) && a.FromDisk.Equal(b.FromDisk) &&
		slices.Equal(a.Errors, b.Errors) && slices.Equal(a.Pods, b.Pods) && slices.Equal(a.Objects, b.Objects)
}

func sameSet(a, b Set) bool {
	return a.Source == b.Source && a.Unread == b.Unread && slices.Equal(a.Unknown, b.Unknown) &&
		same(a.Pods, b.Pods) && same(a.Objects, b.Objects) && same(a.Workloads, b.Workloads) &&
		slices.EqualFunc(a.Reports, b.Reports, sameReport)
}

func sameDesired(a, b Desired) bool {
	return maps.Equal(a.Reported, b.Reported) && maps.EqualFunc(a.Unknown, b.Unknown, slices.Equal[[]string]) &&
		same(a.Pods, b.Pods) && same(a.Objects, b.Objects) && same(a.Workloads, b.Workloads) &&
		slices.EqualFunc(a.Reports, b.Reports, sameReport)
}

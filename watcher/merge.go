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
	d := Desired{Reported: map[string]bool{}, Unknown: map[string][]string{}}
	owners := map[manifests.Key]manifests.Origin{}
	for _, name := range precedence(order, sets) {
		set := sets[name]
		if !set.Unread {
			d.Reported[name] = true
		}
		if len(set.Unknown) > 0 {
			d.Unknown[name] = set.Unknown
		}
		pods, reports := claim(owners, set)
		d.Pods = append(d.Pods, pods...)
		d.Reports = append(d.Reports, reports...)
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

// claim enters the pods of set into owners and returns those that got their place, with the set's reports
// telling of those that did not.
func claim(owners map[manifests.Key]manifests.Origin, set Set) ([]*manifests.Pod, []Report) {
	pods := make([]*manifests.Pod, 0, len(set.Pods))
	reports := slices.Clone(set.Reports)
	for _, p := range set.Pods {
		owner, taken := owners[p.Key()]
		if !taken {
			owners[p.Key()] = p.Origin
			pods = append(pods, p)
			continue
		}
		reports = yield(reports, p, owner)
	}
	return pods, reports
}

// yield changes the report on p's input, or adds one: p gives way to the pod of the same name written at owner.
// Slices inside of reports are replaced, not changed: they belong to the set.
func yield(reports []Report, p *manifests.Pod, owner manifests.Origin) []Report {
	i := slices.IndexFunc(reports, func(r Report) bool { return r.Input == p.Origin.File })
	if i < 0 {
		reports = append(reports, Report{Source: p.Origin.Source, Input: p.Origin.File, State: Accepted})
		i = len(reports) - 1
	}
	r := &reports[i]
	if r.State == Accepted {
		r.State = Conflict
	}
	r.Errors = append(slices.Clone(r.Errors), conflictLine(p, owner))
	key := p.Key().String()
	r.Pods = slices.DeleteFunc(slices.Clone(r.Pods), func(k string) bool { return k == key })
	return reports
}

func conflictLine(p *manifests.Pod, owner manifests.Origin) string {
	return fmt.Sprintf("%s: pod %s is already defined in %s; give one of them another name or remove it",
		place(p.Origin), p.Key(), place(owner))
}

// place prints an origin as file:line.
func place(o manifests.Origin) string {
	if o.Line > 0 {
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return o.File
}

// samePods compares by identity first: sources hand out the same pointers as long as an input does not change.
func samePods(a, b []*manifests.Pod) bool {
	return slices.EqualFunc(a, b, func(p, q *manifests.Pod) bool { return p == q || reflect.DeepEqual(p, q) })
}

func sameReport(a, b Report) bool {
	return a.Source == b.Source && a.Input == b.Input && a.State == b.State && a.Since.Equal(b.Since) &&
		slices.Equal(a.Errors, b.Errors) && slices.Equal(a.Pods, b.Pods)
}

func sameSet(a, b Set) bool {
	return a.Source == b.Source && a.Unread == b.Unread && slices.Equal(a.Unknown, b.Unknown) &&
		samePods(a.Pods, b.Pods) && slices.EqualFunc(a.Reports, b.Reports, sameReport)
}

func sameDesired(a, b Desired) bool {
	return maps.Equal(a.Reported, b.Reported) && maps.EqualFunc(a.Unknown, b.Unknown, slices.Equal[[]string]) &&
		samePods(a.Pods, b.Pods) && slices.EqualFunc(a.Reports, b.Reports, sameReport)
}

// Package cpuset has sets of processors in the format of the kernel, and picks processors by cores and sockets.
// It does not know pods, and does not read the topology of the machine.
package cpuset

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// CPU is a logical processor and where it sits.
type CPU struct{ ID, Core, Socket int }

// Set is a set of processors by number, sorted.
type Set []int

// Parse reads a list as the kernel writes it: 0-3,8. An empty one is no processors.
func Parse(text string) (Set, error) {
	var set Set
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 0 || to < from || to > 1<<16 {
			return nil, fmt.Errorf("%q is not a list of processors", text)
		}
		for id := from; id <= to; id++ {
			set = append(set, id)
		}
	}
	slices.Sort(set)
	return slices.Compact(set), nil
}

// String is the list as the kernel writes it.
func (s Set) String() string {
	var parts []string
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		part := strconv.Itoa(s[i])
		if j > i {
			part += "-" + strconv.Itoa(s[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Without returns what is not in o.
func (s Set) Without(o Set) Set {
	return slices.DeleteFunc(slices.Clone(s), func(id int) bool { return slices.Contains(o, id) })
}

// Union returns what is in either.
func (s Set) Union(o Set) Set {
	all := append(slices.Clone(s), o...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Pick chooses n of the free processors, or reports that too few are free: whole sockets first, then whole
// cores, then the threads of cores that are in use already. all says which belong together.
func Pick(all []CPU, free Set, n int) (Set, bool) {
	if n > len(free) {
		return nil, false
	}
	left := slices.Clone(free)
	var picked Set
	take := func(group Set) {
		picked, left = picked.Union(group), left.Without(group)
	}
	for _, where := range []func(CPU) [2]int{
		func(c CPU) [2]int { return [2]int{c.Socket} },
		func(c CPU) [2]int { return [2]int{c.Socket, c.Core} },
	} {
		for _, group := range groupsOf(all, where) {
			if len(picked)+len(group) <= n && len(group.Without(left)) == 0 {
				take(group)
			}
		}
	}
	if len(picked) == n {
		return picked, true
	}
	var rest []Set
	for _, group := range groupsOf(all, func(c CPU) [2]int { return [2]int{c.Socket, c.Core} }) {
		rest = append(rest, group.Without(group.Without(left)))
	}
	slices.SortStableFunc(rest, func(a, b Set) int { return cmp.Compare(len(a), len(b)) })
	for _, group := range rest {
		take(group[:min(len(group), n-len(picked))])
	}
	return picked, len(picked) == n
}

// groupsOf puts processors of one place together, in the order of their numbers.
func groupsOf(all []CPU, where func(CPU) [2]int) []Set {
	sorted := slices.Clone(all)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].ID < sorted[j].ID })
	var order [][2]int
	groups := map[[2]int]Set{}
	for _, c := range sorted {
		at := where(c)
		if groups[at] == nil {
			order = append(order, at)
		}
		groups[at] = append(groups[at], c.ID)
	}
	out := make([]Set, 0, len(order))
	for _, at := range order {
		out = append(out, groups[at])
	}
	return out
}

package spec

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// CPU is a logical processor and where it sits.
type CPU struct{ ID, Core, Socket int }

// CPUSet is a set of processors by number, sorted.
type CPUSet []int

// ParseCPUSet reads a list as the kernel writes it: 0-3,8. An empty one is no processors.
func ParseCPUSet(text string) (CPUSet, error) {
	var set CPUSet
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
func (s CPUSet) String() string {
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
func (s CPUSet) Without(o CPUSet) CPUSet {
	return slices.DeleteFunc(slices.Clone(s), func(id int) bool { return slices.Contains(o, id) })
}

// Union returns what is in either.
func (s CPUSet) Union(o CPUSet) CPUSet {
	all := append(slices.Clone(s), o...)
	slices.Sort(all)
	return slices.Compact(all)
}

// PickCPUs chooses n of the free processors, or says that there are not enough: whole sockets first, then whole
// cores, then the threads of cores that are in use already. all says which belong together.
func PickCPUs(all []CPU, free CPUSet, n int) (CPUSet, bool) {
	if n > len(free) {
		return nil, false
	}
	left := slices.Clone(free)
	var picked CPUSet
	take := func(group CPUSet) {
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
	var rest []CPUSet
	for _, group := range groupsOf(all, func(c CPU) [2]int { return [2]int{c.Socket, c.Core} }) {
		rest = append(rest, group.Without(group.Without(left)))
	}
	slices.SortStableFunc(rest, func(a, b CPUSet) int { return cmp.Compare(len(a), len(b)) })
	for _, group := range rest {
		take(group[:min(len(group), n-len(picked))])
	}
	return picked, len(picked) == n
}

// groupsOf puts processors of one place together, in the order of their numbers.
func groupsOf(all []CPU, where func(CPU) [2]int) []CPUSet {
	sorted := slices.Clone(all)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].ID < sorted[j].ID })
	var order [][2]int
	groups := map[[2]int]CPUSet{}
	for _, c := range sorted {
		at := where(c)
		if groups[at] == nil {
			order = append(order, at)
		}
		groups[at] = append(groups[at], c.ID)
	}
	out := make([]CPUSet, 0, len(order))
	for _, at := range order {
		out = append(out, groups[at])
	}
	return out
}

// WholeCPUs is how many processors a container gets for itself under the static policy: those of a guaranteed pod
// that ask for whole ones, and stay. 0: it shares.
func WholeCPUs(pod *corev1.Pod, container string) int {
	c, err := findContainer(pod, container)
	if err != nil || manifests.QOSClass(pod) != corev1.PodQOSGuaranteed || isOnce(&pod.Spec, container) {
		return 0
	}
	n := milliCPU(c.Resources.Requests)
	if n%1000 != 0 || n != milliCPU(c.Resources.Limits) {
		return 0
	}
	return int(n / 1000)
}

// isOnce says that a container is an init container that ends before the others start.
func isOnce(spec *corev1.PodSpec, name string) bool {
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == name {
			return !isSidecar(spec, c)
		}
	}
	return false
}

// hasWholeCPUs says that a container of the pod has processors for itself, which a quota of the pod would cut into.
func hasWholeCPUs(pod *corev1.Pod) bool {
	for c := range manifests.AllContainers(&pod.Spec) {
		if WholeCPUs(pod, c.Name) > 0 {
			return true
		}
	}
	return false
}

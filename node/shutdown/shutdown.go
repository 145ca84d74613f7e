// Package shutdown decides in which order pods stop before the machine goes down, and delays the shutdown until they have stopped.
//
// It must not stop pods itself: Pods does, group by group. Manager.Run follows logind and SIGPWR in two goroutines.
package shutdown

import (
	"cmp"
	"slices"
	"time"
)

// Group is the pods from one priority up to that of the next group, and the time they have to stop.
type Group struct {
	Priority int32
	Grace    time.Duration
}

// Progress is how far a shutdown is: the pods of Groups[:Current+1] stop. Groups are sorted by priority, the lowest first.
type Progress struct {
	Groups  []Group
	Current int
}

// Last returns the Progress of a shutdown whose groups stop all at once.
func Last(groups []Group) *Progress { return &Progress{Groups: groups, Current: len(groups) - 1} }

// Due reports whether pods of a priority stop now, and how long they have.
func (p *Progress) Due(priority int32) (grace time.Duration, due bool) {
	i := groupOf(p.Groups, priority)
	return p.Groups[i].Grace, i <= p.Current
}

// groupOf returns the index of the group of a priority. A priority below all groups belongs to the first one.
func groupOf(groups []Group, priority int32) int {
	i, found := slices.BinarySearchFunc(groups, priority, func(g Group, p int32) int { return cmp.Compare(g.Priority, p) })
	if !found {
		i--
	}
	return max(i, 0)
}

// total returns the time that all groups have together.
func total(groups []Group) time.Duration {
	sum := time.Duration(0)
	for _, g := range groups {
		sum += g.Grace
	}
	return sum
}

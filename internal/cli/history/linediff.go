package history

import (
	"fmt"
	"slices"
	"strings"
)

// diffContext is the number of equal lines shown around a difference.
const diffContext = 3

// edit is a line of a comparison: ' ' for both texts, '-' for the old one, '+' for the new one.
type edit struct {
	kind byte
	line string
}

// unifiedDiff compares two texts by lines, like diff -u; it returns "" if they are equal.
func unifiedDiff(fromName, toName string, from, to []string) string {
	edits := lineEdits(from, to)
	var b strings.Builder
	for _, h := range hunks(edits) {
		if b.Len() == 0 {
			fmt.Fprintf(&b, "--- %s\n+++ %s\n", fromName, toName)
		}
		h.print(&b, edits)
	}
	return b.String()
}

// lineEdits finds a longest common subsequence. Manifests are small enough for the simple algorithm.
func lineEdits(from, to []string) []edit {
	common := make([][]int, len(from)+1)
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i, old := range slices.Backward(from) {
		for j, line := range slices.Backward(to) {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); old == line {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var edits []edit
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			edits = append(edits, edit{' ', from[i]})
			i, j = i+1, j+1
		case i < len(from) && (j == len(to) || common[i+1][j] >= common[i][j+1]):
			edits = append(edits, edit{'-', from[i]})
			i++
		default:
			edits = append(edits, edit{'+', to[j]})
			j++
		}
	}
	return edits
}

// hunk is a range of edits to show.
type hunk struct{ begin, end int }

// hunks returns the ranges with differences and their context.
func hunks(edits []edit) []hunk {
	var all []hunk
	for i, e := range edits {
		if e.kind == ' ' {
			continue
		}
		begin, end := max(0, i-diffContext), min(len(edits), i+diffContext+1)
		if n := len(all); n > 0 && begin <= all[n-1].end {
			all[n-1].end = end
			continue
		}
		all = append(all, hunk{begin, end})
	}
	return all
}

func (h hunk) print(b *strings.Builder, edits []edit) {
	at := [2]int{1, 1} // lines of both texts
	var size [2]int
	count := func(lines *[2]int, part []edit) {
		for _, e := range part {
			if e.kind != '+' {
				lines[0]++
			}
			if e.kind != '-' {
				lines[1]++
			}
		}
	}
	count(&at, edits[:h.begin])
	count(&size, edits[h.begin:h.end])
	for i := range at {
		if size[i] == 0 {
			at[i]-- // an empty range is behind the line before it
		}
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", at[0], size[0], at[1], size[1])
	for _, e := range edits[h.begin:h.end] {
		fmt.Fprintf(b, "%c%s\n", e.kind, e.line)
	}
}

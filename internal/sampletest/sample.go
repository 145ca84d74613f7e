// Package sampletest chooses the cases that a test with many of them runs with -test.short. It must not be used in tests that CI does not
// also run without that flag, as it does with the race detector.
package sampletest

import (
	"hash/fnv"
	"testing"
)

// every is the size of a sample: one of so many cases.
const every = 3

// Rounds returns how often a test repeats what it does: n times, a third of that with -test.short.
func Rounds(n int) int {
	if testing.Short() {
		return (n + every - 1) / every
	}
	return n
}

// Skips reports whether the case with this name is left out. Without -test.short none is; with it, the same ones in each run.
func Skips(name string) bool {
	return testing.Short() && !chosen(name)
}

func chosen(name string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()%every == 0
}

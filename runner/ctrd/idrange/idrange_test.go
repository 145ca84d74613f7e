package idrange

import (
	"testing"
)

func TestIDRangesDoNotOverlap(t *testing.T) {
	var r Ranges
	foreign := parseSubIDs("alice:131072:65536\n# no range\nbob:300000:1\nbad:x:1\n")
	if len(foreign) != 2 {
		t.Fatalf("foreign ranges: %v", foreign)
	}
	r.Keep("old", 327680)
	r.Keep("without", 0)
	var got []uint32
	for _, id := range []string{"a", "b", "c"} {
		first, err := r.Take(id, foreign)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, first)
	}
	// 131072 is alice's, in the block at 262144 is bob's, and the one at 327680 is kept.
	if want := [3]uint32{65536, 196608, 393216}; [3]uint32(got) != want {
		t.Errorf("ranges begin at %v, want %v", got, want)
	}
	r.Release("a")
	if first, err := r.Take("d", foreign); err != nil || first != 65536 {
		t.Errorf("after a release the next is %d, %v", first, err)
	}
}

func TestIDRangesRunOut(t *testing.T) {
	var r Ranges
	if first, err := r.Take("a", []idRange{{0, 1 << 31}}); err == nil {
		t.Errorf("there is a range at %d", first)
	}
}

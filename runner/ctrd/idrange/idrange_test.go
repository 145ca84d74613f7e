package idrange

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

func TestIDRangesDoNotOverlap(t *testing.T) {
	var r Ranges
	foreign := parseSubIDs("alice:131072:65536\n# no range\nbob:300000:1\nbad:x:1\n")
	if len(foreign) != 2 {
		t.Fatalf("foreign ranges: %v", foreign)
	}
	if err := r.Keep(map[string]uint32{"old": 327680, "without": 0}); err != nil {
		t.Fatal(err)
	}
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
	if err := r.Release("a"); err != nil {
		t.Fatal(err)
	}
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

// TestRandomIDRanges keeps and releases ranges at random: none overlaps another or a foreign one, and the first is always the host's.
func TestRandomIDRanges(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var foreign []idRange
		for range rnd.IntN(5) {
			foreign = append(foreign, idRange{rnd.Uint64N(1 << 20), rnd.Uint64N(1 << 18)})
		}
		var r Ranges
		has := map[string]uint32{}
		for step := range 50 {
			if rnd.IntN(3) == 0 {
				for id := range has {
					if err := r.Release(id); err != nil {
						t.Fatal(err)
					}
					delete(has, id)
					break
				}
				continue
			}
			id := fmt.Sprint(step)
			first, err := r.Take(id, foreign)
			if err != nil || first < manifests.UserIDs {
				t.Fatalf("seed %d: range at %d, %v", seed, first, err)
			}
			for _, f := range foreign {
				if uint64(first) < f.first+f.size && f.first < uint64(first)+manifests.UserIDs {
					t.Fatalf("seed %d: %d overlaps %v", seed, first, f)
				}
			}
			for other, at := range has {
				if first < at+manifests.UserIDs && at < first+manifests.UserIDs {
					t.Fatalf("seed %d: %d overlaps %d of %s", seed, first, at, other)
				}
			}
			has[id] = first
		}
	}
}

func TestSnapshotLabels(t *testing.T) {
	if got := SnapshotLabels(0); got != nil {
		t.Errorf("without a user namespace: %v", got)
	}
	for key, value := range SnapshotLabels(65536) {
		if value != "0:65536:65536" {
			t.Errorf("%s is %s", key, value)
		}
	}
}

func TestPodsThatWantARange(t *testing.T) {
	for _, hostUsers := range []*bool{nil, new(true), new(false)} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{HostUsers: hostUsers}}
		if got, want := Wanted(pod), hostUsers != nil && !*hostUsers; got != want {
			t.Errorf("hostUsers %v: %t", hostUsers, got)
		}
	}
}

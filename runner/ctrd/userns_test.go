package ctrd

import "testing"

func TestIDRangesDoNotOverlap(t *testing.T) {
	var r idRanges
	foreign := parseSubIDs("alice:131072:65536\n# no range\nbob:300000:1\nbad:x:1\n")
	if len(foreign) != 2 {
		t.Fatalf("foreign ranges: %v", foreign)
	}
	r.keep("old", 327680)
	r.keep("without", 0)
	var got []uint32
	for _, id := range []string{"a", "b", "c"} {
		first, err := r.take(id, foreign)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, first)
	}
	// 131072 is alice's, in the block at 262144 is bob's, and the one at 327680 is kept.
	if want := [3]uint32{65536, 196608, 393216}; [3]uint32(got) != want {
		t.Errorf("ranges begin at %v, want %v", got, want)
	}
	r.release("a")
	if first, err := r.take("d", foreign); err != nil || first != 65536 {
		t.Errorf("after a release the next is %d, %v", first, err)
	}
}

func TestIDRangesRunOut(t *testing.T) {
	var r idRanges
	if first, err := r.take("a", []idRange{{0, 1 << 31}}); err == nil {
		t.Errorf("there is a range at %d", first)
	}
}

func TestMapsIDs(t *testing.T) {
	for text, want := range map[string]bool{
		`{"linux": {"mountExtensions": {"idmap": {"enabled": true}}}}`:  true,
		`{"linux": {"mountExtensions": {"idmap": {"enabled": false}}}}`: false,
		`{"ociVersionMin": "1.0.0", "linux": {}}`:                       false,
		`nonsense`: false,
	} {
		if got, _ := parseFeatures([]byte(text)); got.mapsIDs != want {
			t.Errorf("%s: %t", text, got.mapsIDs)
		}
	}
}

func TestTheFirstIDIsKeptInTheLabels(t *testing.T) {
	for _, first := range []uint32{0, 65536, 2147418112} {
		l := sandboxLabels{FirstID: first}
		if got := decodeSandboxLabels(l.encode()).FirstID; got != first {
			t.Errorf("%d became %d", first, got)
		}
	}
	if _, there := (&sandboxLabels{}).encode()[labelFirstID]; there {
		t.Error("sandboxes without a user namespace have the label")
	}
}

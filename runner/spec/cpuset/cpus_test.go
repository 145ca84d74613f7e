package cpuset

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestCPUSetText(t *testing.T) {
	for text, want := range map[string]string{"": "", "0": "0", "3,1,2": "1-3", "0-1,4,6-7": "0-1,4,6-7", "2,2-3\n": "2-3"} {
		set, err := Parse(text)
		if err != nil || set.String() != want {
			t.Errorf("%q is %s, %v", text, set, err)
		}
	}
	for _, bad := range []string{"a", "3-1", "-1", "1-", "0-99999999"} {
		if set, err := Parse(bad); err == nil {
			t.Errorf("%q is %s", bad, set)
		}
	}
}

// twoSockets has two sockets of two cores of two threads: 0 and 4 are one core.
func twoSockets() []CPU {
	var all []CPU
	for id := range 8 {
		all = append(all, CPU{ID: id, Core: id % 2, Socket: id % 4 / 2})
	}
	return all
}

func TestPickCPUs(t *testing.T) {
	for _, c := range []struct {
		name, free string
		n          int
		want       string
	}{
		{"a whole socket", "0-7", 4, "0-1,4-5"},
		{"a whole core", "0-7", 2, "0,4"},
		{"a core and a thread", "0-7", 3, "0-1,4"},
		{"one thread is taken where the other is in use", "0-3,5-7", 1, "0"},
		{"a socket that is in use is left alone", "1-7", 4, "2-3,6-7"},
		{"what is left over", "0,3", 2, "0,3"},
		{"too many", "0,3", 3, ""},
	} {
		free, err := Parse(c.free)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := Pick(twoSockets(), free, c.n)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %d of %s are %s", c.name, c.n, c.free, got)
		}
	}
}

func TestPickedCPUsAreFreeAndAsManyAsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []CPU
		var free Set
		for id := range rapid.IntRange(1, 16).Draw(t, "cpus") {
			all = append(all, CPU{ID: id, Core: rapid.IntRange(0, 3).Draw(t, "core"), Socket: rapid.IntRange(0, 1).Draw(t, "socket")})
			if rapid.Bool().Draw(t, "free") {
				free = append(free, id)
			}
		}
		n := rapid.IntRange(1, 16).Draw(t, "n")
		got, ok := Pick(all, free, n)
		again, _ := Pick(all, free, n)
		if ok != (n <= len(free)) || !slices.Equal(got, again) {
			t.Fatalf("%d of %s: %s, %t, then %s", n, free, got, ok, again)
		}
		if ok && (len(got) != n || len(got.Without(free)) > 0) {
			t.Fatalf("%d of %s: %s", n, free, got)
		}
	})
}

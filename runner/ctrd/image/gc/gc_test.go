package gc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"monopod/runner/ctrd/image/gc"
)

var (
	now     = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	regular = gc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// digests are those of what goes, with a mark behind those that are old.
func digests(r gc.Result) string {
	var all []string
	for _, x := range r.Remove {
		if x.Old {
			x.Digest += "(old)"
		}
		all = append(all, x.Digest)
	}
	return strings.Join(all, " ")
}

func TestPlan(t *testing.T) {
	images := []gc.Image{
		{Digest: "web", Size: 10, FirstSeen: ago(100 * time.Hour), InUse: true},
		{Digest: "last-week", Size: 3, FirstSeen: ago(200 * time.Hour), LastUsed: ago(168 * time.Hour)},
		{Digest: "yesterday", Size: 3, FirstSeen: ago(300 * time.Hour), LastUsed: ago(24 * time.Hour)},
		{Digest: "never-2", Size: 3, FirstSeen: ago(5 * time.Hour)},
		{Digest: "never-1", Size: 3, FirstSeen: ago(6 * time.Hour)},
		{Digest: "young", Size: 50, FirstSeen: ago(119 * time.Second)},
	}
	for name, c := range map[string]struct {
		policy gc.Policy
		disk   gc.Disk
		needs  []string
		want   string
		short  int64
		next   time.Time
	}{
		"below the high mark nothing goes":                 {policy: regular, disk: gc.Disk{Capacity: 100, Available: 16}, want: ""},
		"at the high mark it goes down to the low one":     {policy: regular, disk: gc.Disk{Capacity: 100, Available: 15}, want: "never-1 never-2"},
		"the order is by the last use, then by age":        {policy: regular, disk: gc.Disk{Capacity: 100, Available: 9}, want: "never-1 never-2 last-week yesterday"},
		"what is needed stays at a full disk":              {policy: regular, disk: gc.Disk{Capacity: 100}, needs: []string{"never-1", "last-week"}, want: "never-2 yesterday", short: 14},
		"everything is needed":                             {policy: regular, disk: gc.Disk{Capacity: 100}, needs: []string{"never-1", "never-2", "last-week", "yesterday"}, short: 20},
		"100 switches it off":                              {policy: gc.Policy{High: 100, Low: 80}, disk: gc.Disk{Capacity: 100}},
		"a disk without a size is not judged":              {policy: regular},
		"what nobody used for long goes from an empty one": {policy: gc.Policy{High: 85, Low: 80, MaxAge: 48 * time.Hour}, disk: gc.Disk{Capacity: 100, Available: 90}, want: "last-week(old)", next: ago(24 * time.Hour).Add(48 * time.Hour)},
		"what is old counts as freed":                      {policy: gc.Policy{High: 85, Low: 80, MaxAge: 48 * time.Hour, MinAge: time.Minute * 2}, disk: gc.Disk{Capacity: 100, Available: 13}, want: "last-week(old)", next: ago(24 * time.Hour).Add(48 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			needs := map[string]bool{}
			for _, n := range c.needs {
				needs[n] = true
			}
			r := c.policy.Plan(now, images, c.disk, needs)
			if got := digests(r); got != c.want {
				t.Errorf("goes: %q, want %q", got, c.want)
			}
			if r.Short != c.short {
				t.Errorf("short by %d, want %d", r.Short, c.short)
			}
			if !r.Next.Equal(c.next) {
				t.Errorf("next at %s, want %s", r.Next, c.next)
			}
		})
	}
	if r := regular.Reclaim(now, images, 4, nil); digests(r) != "never-1 never-2" || r.Short != 0 {
		t.Errorf("reclaim: %+v", r)
	}
	if r := regular.Reclaim(now, images, gc.All, map[string]bool{"yesterday": true}); digests(r) != "never-1 never-2 last-week" || r.Short == 0 {
		t.Errorf("reclaim all: %+v", r)
	}
}

func genImage(t *rapid.T, i int) gc.Image {
	age := time.Duration(rapid.IntRange(-100, 5000).Draw(t, "age")) * time.Second
	img := gc.Image{Digest: fmt.Sprint("sha256:", i), Size: rapid.Int64Range(0, 1000).Draw(t, "size"), FirstSeen: ago(age), InUse: rapid.Bool().Draw(t, "used")}
	if rapid.Bool().Draw(t, "ran") {
		img.LastUsed = ago(time.Duration(rapid.IntRange(-100, 5000).Draw(t, "last")) * time.Second)
	}
	return img
}

// TestWhatIsNeededNeverGoes: whatever the disk, the policy and the clock say.
func TestWhatIsNeededNeverGoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var images []gc.Image
		needs := map[string]bool{}
		for i := range rapid.IntRange(0, 12).Draw(t, "images") {
			img := genImage(t, i)
			images = append(images, img)
			if rapid.Bool().Draw(t, "needed") {
				needs[img.Digest] = true
			}
		}
		capacity := rapid.Int64Range(0, 10000).Draw(t, "capacity")
		disk := gc.Disk{Capacity: capacity, Available: rapid.Int64Range(0, capacity).Draw(t, "available")}
		high := rapid.IntRange(1, 100).Draw(t, "high")
		policy := gc.Policy{
			High: high, Low: rapid.IntRange(0, high-1).Draw(t, "low"),
			MinAge: time.Duration(rapid.IntRange(0, 300).Draw(t, "min")) * time.Second, MaxAge: time.Duration(rapid.IntRange(0, 4000).Draw(t, "max")) * time.Second,
		}
		before := slices.Clone(images)
		bytes := rapid.Int64Range(-10, 20000).Draw(t, "bytes")
		freed := int64(0)
		wanted := policy.Reclaim(now, images, bytes, needs)
		for _, x := range wanted.Remove {
			freed += x.Size
		}
		if freed+wanted.Short < bytes {
			t.Fatalf("%d bytes are to be freed: %d are, %d are said to be missing", bytes, freed, wanted.Short)
		}
		for _, r := range []gc.Result{policy.Plan(now, images, disk, needs), policy.Reclaim(now, images, bytes, needs)} {
			gone := map[string]bool{}
			for _, x := range r.Remove {
				i := slices.IndexFunc(images, func(i gc.Image) bool { return i.Digest == x.Digest })
				img := images[i]
				if needs[x.Digest] || img.InUse || gone[x.Digest] || now.Sub(img.FirstSeen) < policy.MinAge {
					t.Fatalf("%+v goes; needed: %v", img, needs[x.Digest])
				}
				gone[x.Digest] = true
			}
			if r.Short > 0 { // then nothing is left that might go
				for _, img := range images {
					if !gone[img.Digest] && !needs[img.Digest] && !img.InUse && now.Sub(img.FirstSeen) >= policy.MinAge {
						t.Fatalf("%d bytes are missing and %+v stays", r.Short, img)
					}
				}
			}
		}
		if !slices.Equal(before, images) {
			t.Fatal("the input is changed")
		}
		if r := policy.Plan(now, images, disk, needs); policy.Disabled() && len(r.Remove) > 0 {
			t.Fatal("it is disabled and something goes")
		}
	})
}

// TestAPlanThatWasCarriedOutIsTheLast: when removing frees what was expected, nothing more goes.
func TestAPlanThatWasCarriedOutIsTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var images []gc.Image
		for i := range rapid.IntRange(0, 12).Draw(t, "images") {
			images = append(images, genImage(t, i))
		}
		disk := gc.Disk{Capacity: 1000, Available: rapid.Int64Range(0, 1000).Draw(t, "available")}
		r := regular.Plan(now, images, disk, nil)
		for _, x := range r.Remove {
			disk.Available += x.Size
			images = slices.DeleteFunc(images, func(i gc.Image) bool { return i.Digest == x.Digest })
		}
		if again := regular.Plan(now, images, disk, nil); len(again.Remove) > 0 {
			t.Fatalf("first %s, then %s", digests(r), digests(again))
		}
	})
}

package drain_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/node/drain"
)

func TestWhichPodsADrainStops(t *testing.T) {
	web := manifests.Key{Namespace: "default", Name: "web-1"}
	for _, tt := range []struct {
		name     string
		drain    *drain.Drain
		priority int32
		want     bool
	}{
		{name: "none", want: false},
		{name: "all", drain: &drain.Drain{}, priority: 2000001000, want: true},
		{name: "below", drain: &drain.Drain{PriorityBelow: new(int32(100))}, priority: 99, want: true},
		{name: "not below", drain: &drain.Drain{PriorityBelow: new(int32(100))}, priority: 100},
		{name: "ignored by name", drain: &drain.Drain{Ignore: []string{"x", "web-?"}}},
		{name: "ignored with namespace", drain: &drain.Drain{Ignore: []string{"default/*"}}},
		{name: "a star is no slash", drain: &drain.Drain{Ignore: []string{"kube-system/*", "de*1"}}, want: true},
	} {
		s := drain.State{Drain: tt.drain}
		if got := s.Stops(web, tt.priority); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	for _, bad := range []string{"", "[", "a/["} {
		if (&drain.Drain{Ignore: []string{bad}}).Check() == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestWhatWasSaidIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	s := drain.NewStore(file, "boot-1")
	load := func(s *drain.Store, want drain.State) {
		t.Helper()
		if got, err := s.Load(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	load(s, drain.State{})
	said := drain.State{Cordoned: true, Drain: &drain.Drain{PriorityBelow: new(int32(7)), Ignore: []string{"a"}}, Since: time.Unix(9, 0).UTC()}
	if err := s.Save(said); err != nil {
		t.Fatal(err)
	}
	load(drain.NewStore(file, "boot-2"), said)
	said.Boot = "boot-1"
	if err := s.Save(said); err != nil {
		t.Fatal(err)
	}
	load(s, said)
	load(drain.NewStore(file, "boot-2"), drain.State{})
	for range 2 {
		if err := s.Save(drain.State{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Load(); err == nil || st.Cordoned {
		t.Errorf("a broken file: %+v, %v", st, err)
	}
}

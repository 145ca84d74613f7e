package confine

import (
	"maps"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod/runner/ctrd/layout"
	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

// TestOnlyOurOwnFilesAreLabeled: the label of a host path or an image is shared with others.
func TestOnlyOurOwnFilesAreLabeled(t *testing.T) {
	d := layout.Dirs{Root: "/var/lib/monopod", State: "/run/monopod"}
	p := &Profiles{Dirs: d}
	in := spectest.Input(spectest.Pod(nil), "app")
	in.Volumes = map[string]spec.Volume{
		"data": {HostPath: d.EmptyDir("u", "data")}, "host": {HostPath: "/srv/data"}, "image": {HostPath: d.Path("image-volumes", "sb", "image")},
		"beside": {HostPath: d.PodsDir() + "-other/x"},
	}
	s := &specs.Spec{Mounts: []specs.Mount{
		{Source: "proc"}, {Source: d.ShmDir("sb")}, {Source: "/etc/hosts"}, {Source: d.EmptyDir("u", "data") + "/sub"}, {Source: d.SecretsDir() + "/u/token"},
	}}
	want := []string{d.ShmDir("sb"), d.EmptyDir("u", "data"), d.EmptyDir("u", "data") + "/sub", d.SecretsDir() + "/u/token"}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(p.labeled(s, in))); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

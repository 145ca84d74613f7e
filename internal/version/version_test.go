package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionIsTheTagOrTheCommitOfTheBuild(t *testing.T) {
	t.Parallel()
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	for name, c := range map[string]struct {
		build           debug.BuildInfo
		release, commit string
		version, want   string
	}{
		"nothing known":         {version: "devel"},
		"make on a tag":         {release: "v0.1.0", commit: "0123456789abcdef", version: "v0.1.0", want: "0123456789abcdef"},
		"make without a tag":    {commit: "0123456789abcdef", version: "devel-0123456789ab", want: "0123456789abcdef"},
		"go build":              {build: debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs}, version: "devel-0123456789ab-dirty", want: "0123456789abcdef"},
		"go install of a tag":   {build: debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, version: "v0.1.0"},
		"the tag wins over vcs": {build: debug.BuildInfo{Settings: vcs}, release: "v0.1.0", version: "v0.1.0", want: "0123456789abcdef"},
	} {
		t.Run(name, func(t *testing.T) {
			if i := describe(&c.build, c.release, c.commit, ""); i.Version != c.version || i.Commit != c.want || i.Go == "" {
				t.Errorf("%+v, want version %s, commit %s", i, c.version, c.want)
			}
		})
	}
}

func TestVersionsOfLibrariesHaveNoPrefix(t *testing.T) {
	t.Parallel()
	i := describe(&debug.BuildInfo{Deps: []*debug.Module{{Path: "x", Version: "v9"}, {Path: containerd, Version: "v2.4.2"}}}, "", "", "v1.5.2")
	if i.Containerd != "2.4.2" || i.Runc != "1.5.2" {
		t.Errorf("%+v", i)
	}
}

// Package version owns the identity of this program: its module path, its version and the versions of what it was built from.
//
// It must not look at the machine. It starts no goroutines.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Module is the path of the Go module. It has no dot, so other modules need a replace directive to import its packages;
// .ci/module-path gives it the path under which it is published, here, in go.mod and in every import.
const Module = "monopod"

// Set by the linker: -X monopod/internal/version.release=... (see the Makefile). Empty in builds without make.
var (
	release string //nolint:gochecknoglobals // the tag, if the commit has one; the linker sets it
	commit  string //nolint:gochecknoglobals // the linker sets it
	runc    string //nolint:gochecknoglobals // the version in the bundle; the linker sets it
)

// containerd is the module whose version Info reports.
const containerd = "github.com/containerd/containerd/v2"

// Info describes a build. Empty fields are unknown.
type Info struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Go         string `json:"go"`
	Containerd string `json:"containerd"`
	Runc       string `json:"runc"`
	Platform   string `json:"platform"`
}

// Get returns the versions of this build: runc is the one that the bundle carries.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return describe(build, release, commit, runc)
}

// String returns the release, or "devel" with the commit of a development build.
func String() string { return Get().Version }

// describe combines what the linker set with what Go recorded.
func describe(build *debug.BuildInfo, release, commit, runc string) Info {
	i := Info{Version: release, Commit: commit, Runc: strings.TrimPrefix(runc, "v"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	dirty := ""
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			i.Commit = cmp.Or(i.Commit, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	for _, m := range build.Deps {
		if m.Path == containerd {
			i.Containerd = strings.TrimPrefix(m.Version, "v")
		}
	}
	if v := build.Main.Version; i.Version == "" && v != "(devel)" {
		i.Version = v
	}
	if i.Version == "" {
		i.Version = "devel"
		if i.Commit != "" {
			i.Version += "-" + i.Commit[:min(12, len(i.Commit))] + dirty
		}
	}
	return i
}

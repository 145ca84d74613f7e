// Package version owns the identity of this program: its module path and its version.
//
// It must not know anything else. It has no goroutines.
package version

import "runtime/debug"

// Module is the path of the Go module. It has no dot, so other modules need a replace directive to import its packages;
// .ci/module-path gives it the path under which it is published, here, in go.mod and in every import.
const Module = "monopod"

// String is the module's version, or the commit a development build was made from.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if rev == "" {
		return "devel"
	}
	return "devel-" + rev[:min(12, len(rev))] + dirty
}

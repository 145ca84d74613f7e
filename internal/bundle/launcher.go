package bundle

import (
	"os"
	"path/filepath"
	"strings"
)

// LauncherVariable tells a program that was unpacked which file it came in.
const LauncherVariable = "MONOPOD_LAUNCHER"

// WithLauncher returns env with the launcher's path.
func WithLauncher(env []string, path string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, LauncherVariable+"=") {
			out = append(out, v)
		}
	}
	return append(out, LauncherVariable+"="+path)
}

// Launcher returns the file that this program came in; empty when it did not come in one.
func Launcher() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return launcherOf(exe, os.Getenv(LauncherVariable))
}

// launcherOf does not believe the variable of a program that was started by another one, which may have inherited it.
func launcherOf(exe, variable string) string {
	if !filepath.IsAbs(variable) || !isVersion(filepath.Base(filepath.Dir(exe))) && !strings.HasPrefix(exe, "/memfd:") {
		return ""
	}
	return variable
}

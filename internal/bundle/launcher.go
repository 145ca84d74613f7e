package bundle

import (
	"os"
	"path/filepath"
	"strings"
)

// LauncherVariable is the environment variable with the path of the launcher of an unpacked program.
const LauncherVariable = "MONOPOD_LAUNCHER"

// WithLauncher returns env with the path of the launcher.
func WithLauncher(env []string, path string) []string {
	var out []string
	for _, v := range env {
		if !strings.HasPrefix(v, LauncherVariable+"=") {
			out = append(out, v)
		}
	}
	return append(out, LauncherVariable+"="+path)
}

// Launcher returns the launcher of this program, or "" without one.
func Launcher() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return launcherOf(exe, os.Getenv(LauncherVariable))
}

// launcherOf ignores the variable in a program that was started by another program, from which it may have been inherited.
func launcherOf(exe, variable string) string {
	if !filepath.IsAbs(variable) || !isVersion(filepath.Base(filepath.Dir(exe))) && !strings.HasPrefix(exe, "/memfd:") {
		return ""
	}
	return variable
}

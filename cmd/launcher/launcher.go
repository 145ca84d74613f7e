package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"monopod/internal/bundle"
)

const (
	program = "monopod"
	// dirVariable names the only directory to try.
	dirVariable = "MONOPOD_BUNDLE_DIR"
)

// parcel is what bundle.Parcel does.
type parcel interface {
	Dir(dir string) string
	Whole(final string) bool
	Sound(final string) bool
	Unpack(dir string, good func(final string) bool) (string, error)
	Program(name string, w io.Writer) error
}

type launcher struct {
	parcel parcel
	// self is the path of this program.
	self   string
	args   []string
	env    []string
	euid   int
	stderr io.Writer
	// exec executes another program; it returns only on failure.
	exec func(path string, args, env []string) error
	// fallback executes the program without a file on disk.
	fallback func(l *launcher) error
}

// place is a directory for unpacked versions.
type place struct {
	dir string
	// found means that existing programs may be used, but not replaced.
	found bool
}

// places returns the directories to try. Other users use what root has unpacked. /run is for a disk that is full or read-only; its content
// is lost at the next boot.
func places(euid int, env []string) []place {
	variable := func(name string) (value string) {
		for _, v := range env {
			if rest, ok := strings.CutPrefix(v, name+"="); ok {
				value = rest
			}
		}
		return value
	}
	if dir := variable(dirVariable); dir != "" {
		return []place{{dir: dir}}
	}
	all := []place{{dir: "/var/lib/monopod/bin", found: euid != 0}, {dir: "/run/monopod/bin", found: euid != 0}}
	if euid == 0 {
		return all
	}
	if cache := variable("XDG_CACHE_HOME"); filepath.IsAbs(cache) {
		return append(all, place{dir: filepath.Join(cache, program)})
	}
	if home := variable("HOME"); filepath.IsAbs(home) {
		return append(all, place{dir: filepath.Join(home, ".cache", program)})
	}
	return all
}

// run executes monopod, and returns only on failure.
func (l *launcher) run() error {
	l.env = bundle.WithLauncher(l.env, l.self)
	good := l.parcel.Whole
	if l.command() == "run" {
		good = l.parcel.Sound
	}
	var errs []error
	for _, p := range places(l.euid, l.env) {
		final, err := l.parcel.Dir(p.dir), error(nil)
		switch {
		case !p.found:
			final, err = l.parcel.Unpack(p.dir, good)
		case !l.parcel.Whole(final):
			continue
		}
		if err == nil {
			path := filepath.Join(final, program)
			err = fmt.Errorf("start %s: %w", path, l.exec(path, l.args, l.env))
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err != nil && l.needsHelpers() {
		fmt.Fprintf(l.stderr, "monopod: running from memory, without its bundled programs: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return errors.Join(err, l.fallback(l))
}

// command returns the first argument that is not a flag.
func (l *launcher) command() string {
	for _, arg := range l.args[min(1, len(l.args)):] {
		if !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// needsHelpers reports whether the command starts pods.
func (l *launcher) needsHelpers() bool {
	switch l.command() {
	case "run", "once", "up":
		return true
	}
	return false
}

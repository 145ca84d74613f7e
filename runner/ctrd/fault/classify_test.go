package fault

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
	"monopod/runner"
)

func TestErrorsOfTheOCIRuntimeAreClassified(t *testing.T) {
	for text, want := range map[string]cause.Cause{
		`create task: runc create failed: unable to start container process: error during container init: exec: "nginxx": executable file not found in $PATH`:                                                {Kind: cause.CommandNotFound, Program: "nginxx"},
		`failed to create task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/bin/nope": stat /bin/nope: no such file or directory`: {Kind: cause.CommandNotFound, Program: "/bin/nope"},
		`runc create failed: unable to start container process: exec: "/etc/passwd": permission denied`:                                                                                                      {Kind: cause.CommandNotFound, Program: "/etc/passwd", Fault: cause.NotExecutable},
		`runc create failed: unable to start container process: exec: "/tmp": is a directory`:                                                                                                                {Kind: cause.CommandNotFound, Program: "/tmp"},
		"runc create failed: exec /x/y: no such file or directory":                                                                                                                                           {Kind: cause.CommandNotFound, Program: "/x/y"},
		`runc create failed: error mounting "/x" to rootfs at "/etc/hosts": read-only file system`:                                                                                                           {},
		"mkdir /var/lib/monopod/x: no space left on device":                                                                                                                                                  {Kind: cause.NoSpace},
		"failed to create shim task: write /run/x: no space left on device: unknown":                                                                                                                         {Kind: cause.NoSpace},
		"context deadline exceeded": {},
	} {
		if got := classify(errors.New(text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	if got := classify(fmt.Errorf("make a directory: %w", unix.ENOSPC)); got.Kind != cause.NoSpace {
		t.Errorf("an errno: %+v", got)
	}
}

func TestAStepErrorKeepsTheCauseThatIsKnown(t *testing.T) {
	full := errors.New("write /x: no space left on device")
	if got := cause.Of(Step(runner.ReasonCreateContainerError, full)).Kind; got != cause.NoSpace {
		t.Errorf("an error of the runtime: %q", got)
	}
	known := cause.Wrap(full, cause.Cause{Kind: cause.Mount})
	if got := cause.Of(Step(runner.ReasonFailedMount, known)).Kind; got != cause.Mount {
		t.Errorf("an error whose cause is known: %q", got)
	}
	for err, want := range map[error]cause.Kind{full: cause.NoSpace, known: cause.Mount, errors.New("link: no such device"): cause.Network} {
		if got := cause.Of(Known(cause.Network, err)).Kind; got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if err := Step(runner.ReasonFailedMount, nil); err != nil || Known(cause.Network, nil) != nil {
		t.Errorf("nil became %v", err)
	}
}

package container

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod/runner"
	"monopod/runner/ctrd/fault"
)

// TestTroubleOfTheMachineIsNoExit: a pod that is not restarted would have failed for ever, although nothing of it has run.
func TestTroubleOfTheMachineIsNoExit(t *testing.T) {
	const runc = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
	for text, want := range map[string]bool{
		runc + `exec: "nginxx": executable file not found in $PATH`:                                              true,
		runc + `exec: "no space left on device": executable file not found in $PATH`:                             true,
		runc + `error mounting "/x" to rootfs at "/etc/hosts": read-only file system`:                            true,
		runc + `error mounting "/x" to rootfs at "/memory": mkdir /r/rootfs/memory: no space left on device`:     false,
		runc + `error mounting "/x" to rootfs at "/memory": mkdir /r/rootfs/memory: disk quota exceeded`:         false,
		"failed to create shim task: open /run/x/log.json: too many open files: unknown":                         false,
		"failed to create shim task: open /run/x/log.json: too many open files in system: unknown":               false,
		runc + `error mounting "/x" to rootfs at "/memory": mkdir /r/rootfs/memory: input/output error: unknown`: false,
	} {
		if got := refused(fault.Step(runner.ReasonRunContainerError, errors.New(text))); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	for err, want := range map[error]bool{
		fault.Step(runner.ReasonRunContainerError, errdefs.ErrUnavailable):                     false,
		fault.Step(runner.ReasonRunContainerError, fmt.Errorf("write state: %w", unix.ENOSPC)): false,
		fault.Step(runner.ReasonCreateContainerError, errors.New("exec: no such file")):        false,
		errors.New("not a step"): false,
	} {
		if got := refused(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

package pool

import (
	"errors"
	"fmt"
	"testing"

	"monopod/internal/cause"
	"monopod/runner"
)

func TestEachFailureHasACause(t *testing.T) {
	plain := errors.New("no such device")
	for reason, want := range map[string]cause.Kind{
		runner.ReasonErrImagePull:               cause.ImagePull,
		runner.ReasonImageInspectError:          cause.ImageBroken,
		runner.ReasonErrImageNeverPull:          cause.ImageNeverPull,
		runner.ReasonInvalidImageName:           cause.ImageName,
		runner.ReasonImageNotAllowed:            cause.ImageNotAllowed,
		runner.ReasonSignatureValidationFailed:  cause.ImageUnsigned,
		runner.ReasonFailedMount:                cause.Mount,
		runner.ReasonCreatePodSandboxError:      cause.Sandbox,
		runner.ReasonHostPortConflict:           cause.HostPortProcess,
		runner.ReasonPostStartHookError:         cause.Hook,
		runner.ReasonResizeError:                cause.Resize,
		runner.ReasonCreateContainerConfigError: cause.Config,
		runner.ReasonAppArmor:                   cause.Config,
		runner.ReasonCreateContainerError:       cause.Start,
		runner.ReasonRunContainerError:          cause.Start,
		"":                                      cause.Start,
	} {
		if got := failureCause(reason, "a", plain); got != (cause.Cause{Kind: want, Container: "a", Detail: "no such device"}) {
			t.Errorf("%s: %+v, want %s", reason, got, want)
		}
	}
	known := cause.Cause{Kind: cause.HostPath, Container: "b", Path: "/srv", Detail: "what the classifier says"}
	err := &runner.StepError{Reason: runner.ReasonFailedMount, Err: fmt.Errorf("volume v: %w", cause.Wrap(plain, known))}
	if got := failureCause(runner.ReasonFailedMount, "a", err); got != known {
		t.Errorf("what the error knows: %+v, want %+v", got, known)
	}
}

package retry

import (
	"time"

	"monopod/internal/cause"
	"monopod/runner"
)

// Failure is the worker's memory of a failed step, kept until the step succeeds or the manifest changes.
type Failure struct {
	// Reason is a waiting reason, e.g. ErrImagePull or CreateContainerConfigError.
	Reason  string
	Message string
	// Count is the number of consecutive failures.
	Count int
	// At is the time of the latest failure.
	At time.Time
	// Cause is what failed. Its kind is always set; its Detail is Message without the name of the step.
	Cause cause.Cause
}

// Back-off of failed steps. For pulls it is the kubelet's (10 s doubling to 300 s), to spare registries and links. Other steps fail for
// reasons on this machine (a missing hostPath, a full disk, a missing CNI plug-in) whose fix causes no event. An attempt costs less than
// 0.1 s, so the back-off starts at 1 s and is at most one minute.
const (
	imageBackOff    = 10 * time.Second
	maxImageBackOff = 300 * time.Second
	stepBackOff     = time.Second
	maxStepBackOff  = 60 * time.Second
)

// Due returns when the failed step may be retried.
func (f Failure) Due() time.Time {
	if f.IsImage() {
		return f.At.Add(Doubled(imageBackOff, maxImageBackOff, f.Count))
	}
	return f.At.Add(Doubled(stepBackOff, maxStepBackOff, f.Count))
}

// IsImage reports whether the failed step was to provide the image.
func (f Failure) IsImage() bool {
	switch f.Reason {
	case runner.ReasonErrImagePull, runner.ReasonImagePullBackOff, runner.ReasonErrImageNeverPull, runner.ReasonInvalidImageName, runner.ReasonImageInspectError,
		runner.ReasonSignatureValidationFailed, runner.ReasonImageNotAllowed:
		return true
	}
	return false
}

// Doubled returns d, doubled for each failure after the first, at most longest.
func Doubled(d, longest time.Duration, count int) time.Duration {
	for range count - 1 {
		if d *= 2; d >= longest {
			return longest
		}
	}
	return d
}

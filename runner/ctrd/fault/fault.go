// Package fault gives errors the step of a pod's life in which they happened, as runner.StepError, with the cause that containerd or the OCI
// runtime gave as a text. It decides nothing by it.
package fault

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod/internal/cause"
	"monopod/runner"
)

// Step gives an error a waiting reason, unless it has one.
func Step(reason string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*runner.StepError](err); ok {
		return err
	}
	if c := classify(err); c.Kind != "" && cause.Of(err).Kind == "" {
		err = cause.Wrap(err, c)
	}
	return &runner.StepError{Reason: reason, Err: err}
}

// Wrap says in which step an error happened; nil stays nil.
func Wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}

// IgnoreNotFound returns nil for an error of something that does not exist.
func IgnoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

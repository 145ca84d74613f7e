// Package fault adds the failed step to errors, as runner.StepError, with the cause found in the text of containerd or the OCI
// runtime. It must not act on errors.
package fault

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod/internal/cause"
	"monopod/runner"
)

// Step adds a waiting reason to an error, unless it has one.
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

// Known attaches a cause to an error that has none: the one that its text shows, else one of that kind.
func Known(kind cause.Kind, err error) error {
	if err == nil || cause.Of(err).Kind != "" {
		return err
	}
	c := classify(err)
	c.Kind = cmp.Or(c.Kind, kind)
	return cause.Wrap(err, c)
}

// Wrap adds the failed step to an error; nil stays nil.
func Wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}

// IgnoreNotFound returns nil for an error that reports a missing object.
func IgnoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cli/lookup"
	"monopod/internal/objects"
	"monopod/internal/pause"
	"monopod/internal/program"
	"monopod/node/localclient"
)

// objectPeriod is the polling interval.
const objectPeriod = 500 * time.Millisecond

// waitFor holds the values of --for and --timeout.
type waitFor struct {
	until   string
	timeout time.Duration
}

// waitObjects waits for one object after the other.
func (p Commands) waitObjects(ctx context.Context, c *localclient.Client, all []program.Object, w waitFor) error {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	for _, o := range all {
		if err := p.waitObject(ctx, c, o, w.until); err != nil {
			return err
		}
	}
	return nil
}

// waitable refuses conditions that objects of a kind never have.
func waitable(kind, until string) error {
	what, value, _ := strings.Cut(until, "=")
	name, _, _ := strings.Cut(value, "=")
	known := objects.Conditions(kind)
	if kind == "Pod" || until == "delete" || what == "condition" && slices.ContainsFunc(known, func(c string) bool { return strings.EqualFold(c, name) }) {
		return nil
	}
	hint := "wait for delete"
	if len(known) > 0 {
		hint = "wait for condition=" + strings.Join(known, ", condition=") + " or delete"
	}
	if what == "phase" {
		return program.Usagef("a %s has no phase; %s", kind, hint)
	}
	return program.Usagef("a %s has no condition %s; %s", kind, name, hint)
}

// waitObject waits until an object that is not a pod meets --for.
func (p Commands) waitObject(ctx context.Context, c *localclient.Client, o program.Object, until string) error {
	_, value, _ := strings.Cut(until, "=")
	last, seen := "monopod has not answered yet", false
	for {
		item, err := lookup.FindObject(ctx, c, o)
		_, gone := errors.AsType[program.NotFoundError](err)
		_, absent := errors.AsType[*localclient.ConnectError](err)
		switch {
		case gone && until == "delete":
			return p.conditionMet(o)
		case gone:
			last = "it does not exist"
		case absent && seen: // it is being restarted
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && until != "delete":
			met, lost := p.objectState(ctx, c, item, value)
			if met {
				return p.conditionMet(o)
			}
			if lost != "" {
				p.Errs().Printf("monopod: %s %s\n", o, lost)
				return program.CodeError{Code: program.ExitError}
			}
			last = "the condition is not met yet"
		case err == nil:
			last = "it exists"
		}
		seen = seen || err == nil || gone
		if pause.For(ctx, objectPeriod); errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.Errs().Printf("monopod: timed out waiting for %s of %s: %s\n", strings.Replace(until, "=", " ", 1), o, last)
			return program.CodeError{Code: program.ExitTimeout}
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (p Commands) conditionMet(o program.Object) error {
	p.Out().Printf("%s/%s condition met\n", strings.ToLower(o.Kind), o.Key.Name)
	return nil
}

// objectState reports whether an object has a condition, as NAME or NAME=VALUE; lost is the reason why it never will.
func (p Commands) objectState(ctx context.Context, c *localclient.Client, i objects.Item, condition string) (met bool, lost string) {
	name, want, explicit := strings.Cut(condition, "=")
	if !explicit {
		want = string(corev1.ConditionTrue)
	}
	rolled, err := rolloutOf(i)
	if err != nil {
		return false, fmt.Sprintf("cannot be read: %v", err)
	}
	wantTrue := strings.EqualFold(want, string(corev1.ConditionTrue))
	for _, c := range rolled.conditions {
		if strings.EqualFold(c.Type, name) {
			return strings.EqualFold(c.Status, want) && (!wantTrue || rolled.begun()), ""
		}
		if i.Kind == "Job" && c.Status == string(corev1.ConditionTrue) && (c.Type == "Failed" || c.Type == "Complete") {
			lost = "is " + c.Type
		}
	}
	if strings.EqualFold(name, "Ready") && objects.IsWorkload(i.Kind) && i.Kind != "Job" && i.Kind != "CronJob" {
		if wantTrue && rolled.waitsForUpdate() {
			rolled.updated += int32(len(rolledBack(ctx, c, i))) // they stay as they are
		}
		return (rolled.missing() == "") == wantTrue, ""
	}
	return false, lost
}

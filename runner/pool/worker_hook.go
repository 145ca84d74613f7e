package pool

import (
	"context"
	"fmt"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/hook"
	"monopod/runner/plan"
)

// hookOutput is the number of bytes of a hook's output that are kept for the log when it fails.
const hookOutput = 1024

// runHook starts a hook in the background.
func (w *hookRunner) runHook(ctx context.Context, a runner.Action) {
	key := plan.HookKey{ContainerID: a.ContainerID, Hook: a.Hook}
	if _, begun := w.hooks[key]; begun {
		return
	}
	w.log().Debug("hook begins", "container", a.Container, "hook", string(a.Hook), "what", a.Handler.String())
	w.hooks[key] = w.background(ctx, a, func(ctx context.Context) error { return w.hookError(ctx, a) })
	w.observed.Hooks[key] = plan.HookRunning
}

// hookError runs a hook and returns why it failed.
func (w *hookRunner) hookError(ctx context.Context, a runner.Action) error {
	if a.Handler.Err != nil {
		return a.Handler.Err
	}
	return hook.Run(ctx, a.Handler.Hook, func(ctx context.Context, command []string) (int, string, error) {
		r, err := w.pool.rt.Exec(ctx, w.key, runner.ExecRequest{
			ContainerID: a.ContainerID, Command: command, Timeout: a.Timeout, Limit: hookOutput,
		})
		return r.ExitCode, string(r.Output), err
	})
}

// collectHooks records the hooks that have ended, and drops those of containers that are gone.
func (w *hookRunner) collectHooks() {
	for key, h := range w.hooks {
		c := w.instance(key.ContainerID)
		running := c != nil && c.State == runner.ContainerRunning
		if !running {
			h.cancel()
		}
		select {
		case <-h.over:
		default:
			continue
		}
		switch {
		case c == nil:
			delete(w.hooks, key)
			delete(w.observed.Hooks, key)
		case w.observed.Hooks[key] == plan.HookRunning:
			w.bookHook(key, h, running)
		}
	}
}

func (w *hookRunner) bookHook(key plan.HookKey, h *step, running bool) {
	h.cancel()
	w.observed.Hooks[key] = plan.HookDone
	if h.err == nil {
		w.log().Debug("hook succeeded", "container", h.action.Container, "hook", string(key.Hook))
		return
	}
	w.observed.Hooks[key] = plan.HookFailed
	if !running {
		return // a hook that ends with its container has not failed
	}
	err := fmt.Errorf("%s hook: %s: %w", key.Hook, h.action.Handler, h.err)
	w.log().Warn("hook failed", "container", h.action.Container, "hook", string(key.Hook), "err", err)
	w.recordHook(h.action.Container, key.Hook, h.err)
	if key.Hook == runner.PostStartHook {
		w.observed.Failures[h.action.Container] = plan.Failure{
			Reason: runner.ReasonPostStartHookError, Message: err.Error(), Count: 1, At: w.pool.cfg.Now(),
			Cause: cause.Cause{Kind: cause.Hook, Container: h.action.Container, Detail: err.Error()},
		}
	}
}

// endHooks cancels the hooks of a container that gets its signal: their time is over.
func (w *hookRunner) endHooks(id string) {
	for key, h := range w.hooks {
		if key.ContainerID == id {
			h.cancel()
		}
	}
}

func (w *hookRunner) dropHooks() {
	for _, h := range w.hooks {
		h.cancel()
	}
}

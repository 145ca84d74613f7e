package runner

import (
	"context"
	"fmt"

	"monopod/runner/hook"
)

// hookOutput is how much of the output of a hook's command is kept, for the log when it fails.
const hookOutput = 1024

// hookRun is a hook that is under way or over. Its goroutine writes err, then closes over.
type hookRun struct {
	action Action
	cancel context.CancelFunc
	over   chan struct{}
	err    error
}

// runHook begins a hook in the background.
func (w *worker) runHook(ctx context.Context, a Action) {
	key := HookKey{a.ContainerID, a.Hook}
	if _, begun := w.hooks[key]; begun {
		return
	}
	hookCtx, cancel := context.WithCancel(ctx)
	if a.Timeout > 0 {
		hookCtx, cancel = context.WithTimeout(ctx, a.Timeout)
	}
	h := &hookRun{action: a, cancel: cancel, over: make(chan struct{})}
	w.hooks[key] = h
	w.observed.Hooks[key] = HookRunning
	w.log.Debug("hook begins", "container", a.Container, "hook", string(a.Hook), "what", a.Handler.String())
	w.pool.group.Go(func() {
		defer signal(w.ready) // after over is closed: who is woken looks at that
		defer close(h.over)
		err, crash := guarded(func() error { return w.hookError(hookCtx, a) })
		if crash != nil {
			err = crash
		}
		h.err = err
	})
}

// hookError runs a hook and returns why it failed.
func (w *worker) hookError(ctx context.Context, a Action) error {
	if a.Handler.Err != nil {
		return a.Handler.Err
	}
	return hook.Run(ctx, a.Handler.Hook, func(ctx context.Context, command []string) (int, string, error) {
		r, err := w.pool.rt.Exec(ctx, w.key, ExecRequest{
			ContainerID: a.ContainerID, Command: command, Timeout: a.Timeout, Limit: hookOutput,
		})
		return r.ExitCode, string(r.Output), err
	})
}

// collectHooks books the hooks that have ended, and forgets those of containers that are gone.
func (w *worker) collectHooks() {
	for key, h := range w.hooks {
		running := w.runsInstance(key.ContainerID)
		if !running {
			h.cancel()
		}
		select {
		case <-h.over:
		default:
			continue
		}
		switch {
		case !w.has(key.ContainerID):
			delete(w.hooks, key)
			delete(w.observed.Hooks, key)
		case w.observed.Hooks[key] == HookRunning:
			w.bookHook(key, h, running)
		}
	}
}

func (w *worker) bookHook(key HookKey, h *hookRun, running bool) {
	h.cancel()
	w.observed.Hooks[key] = HookDone
	if h.err == nil {
		w.log.Debug("hook succeeded", "container", h.action.Container, "hook", string(key.Hook))
		return
	}
	w.observed.Hooks[key] = HookFailed
	if !running {
		return // that it has not outlived its container is no failure of its own
	}
	err := fmt.Errorf("%s hook: %s: %w", key.Hook, h.action.Handler, h.err)
	w.log.Warn("hook failed", "container", h.action.Container, "hook", string(key.Hook), "error", err)
	if key.Hook == PostStartHook {
		w.observed.Failures[h.action.Container] = Failure{
			Reason: ReasonPostStartHookError, Message: err.Error(), Count: 1, At: w.pool.cfg.Now(),
		}
	}
}

// endHooks cancels the hooks of a container that gets its signal: their time is over.
func (w *worker) endHooks(id string) {
	for key, h := range w.hooks {
		if key.ContainerID == id {
			h.cancel()
		}
	}
}

func (w *worker) dropHooks() {
	for _, h := range w.hooks {
		h.cancel()
	}
}

func (w *worker) runsInstance(id string) bool {
	for i := range w.observed.Containers {
		if c := &w.observed.Containers[i]; c.ID == id {
			return c.State == ContainerRunning
		}
	}
	return false
}

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/dirlock"
	"monopod/internal/run/hostports"
	"monopod/internal/run/kept"
	"monopod/manifests"
	"monopod/node/localclient"
)

// keeperPatience bounds how long the daemon of kept pods takes to answer.
const keeperPatience = 30 * time.Second

// openSlot locks the first free slot. Before that, it removes the leftovers of killed runs.
func (p Commands) openSlot(ctx context.Context, cfg *config.Loaded) (*Slot, error) {
	if err := p.sweep(ctx, cfg); err != nil {
		p.PrintError(err) // leftovers do not block a new slot
	}
	for n := range maxRuns {
		s := NewSlot(cfg, n)
		if s.Used() {
			continue
		}
		switch err := s.Lock(); {
		case dirlock.IsHeld(err):
		case err != nil:
			return nil, err
		case !s.Used():
			return s, nil
		default: // it was left while the lock was waited for
			s.Release()
		}
	}
	return nil, fmt.Errorf("%d runs already exist", maxRuns)
}

// sweep removes the leftovers of killed runs.
func (p Commands) sweep(ctx context.Context, cfg *config.Loaded) error {
	all, err := Slots(cfg)
	errs := []error{err}
	for _, s := range all {
		if !s.Used() || s.Kept() {
			continue
		}
		if err := s.Lock(); err != nil {
			if !dirlock.IsHeld(err) {
				errs = append(errs, err)
			}
			continue
		}
		if s.Used() && !s.Kept() {
			p.Errs().Printf("monopod: removing leftovers of a killed run (run %d)\n", s.number)
			errs = append(errs, p.sweepSlot(ctx, s))
		}
		s.Release()
	}
	return errors.Join(errs...)
}

// sweepSlot removes a run except its images. The slot must be locked.
func (p Commands) sweepSlot(ctx context.Context, s *Slot) error {
	cfg, err := s.Read()
	if err != nil {
		return err
	}
	g, err := p.newStage(ctx, s, cfg, &Content{}, daemon.OpenRun)
	if err != nil {
		return err
	}
	return g.remove(ctx)
}

// DropRuns removes the leftovers of killed runs, and the images of free slots.
func (p Commands) DropRuns(ctx context.Context, cfg *config.Loaded) error {
	errs := []error{p.sweep(ctx, cfg)}
	all, err := Slots(cfg)
	errs = append(errs, err)
	for _, s := range all {
		if s.Used() || s.Lock() != nil {
			continue
		}
		if !s.Used() {
			errs = append(errs, os.RemoveAll(s.State), s.Drop())
			_ = os.Remove(filepath.Dir(s.State)) // unless there are others
		}
		s.Release()
	}
	return errors.Join(errs...)
}

// keep ends the run but keeps its pods, and starts a daemon for them.
func (g *stage) keep(ctx context.Context) error {
	documents, err := kept.Documents(g.set)
	places := map[string]string{}
	for i, d := range documents {
		name := filepath.Join("manifests", fmt.Sprintf("%04d.json", i))
		places[filepath.Join(g.slot.Root, name)] = d.Place
		err = errors.Join(err, g.slot.writeFile(name, d.Text))
	}
	mark, bad := json.Marshal(places)
	if err = errors.Join(err, bad, g.slot.writeFile(KeptFile, mark)); err != nil {
		return fmt.Errorf("keep run %d: %w", g.slot.number, err)
	}
	err = errors.Join(g.end(), g.log.Close())
	g.slot.Release()
	defer g.p.Signals.AtEnd(nil)
	if err := errors.Join(err, g.p.Machine.Runs.Keep(ctx, g.cfg, filepath.Join(g.slot.Root, runFile))); err != nil {
		return fmt.Errorf("keep run %d (see %s; `monopod down %d` removes it): %w", g.slot.number, g.log.Name(), g.slot.number, err)
	}
	return nil
}

// KeepRun starts `monopod run` beside this process and returns when it answers.
func KeepRun(ctx context.Context, cfg *config.Loaded, configFile string) error {
	log, err := os.OpenFile(filepath.Join(cfg.RootDirectory, RunLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command("/proc/self/exe", "run", "--config", configFile) // this program, wherever it is and even if it has been replaced meanwhile
	c.Args[0] = os.Args[0]
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, config.EnvPrefix) })
	c.Dir, c.Stdout, c.Stderr = "/", log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }() // it ends with this process, if not before
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keeperPatience)
	defer cancel()
	client := localclient.New(cfg.Socket)
	for {
		if _, err = client.Pods(ctx, ""); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return errors.Join(errors.New("its agent has exited"), err)
		case <-ctx.Done():
			return fmt.Errorf("its agent does not answer: %w", err)
		case <-time.After(daemon.PollInterval / 2):
		}
	}
}

// template returns the pod template of a workload.
func template(w *manifests.Object) *corev1.PodTemplateSpec { return manifests.PodTemplate(w.Object) }

// ReserveAgain reserves the host ports of a kept run, until the returned values are closed. For other daemons it does nothing.
func ReserveAgain(cfg *config.Loaded, log *slog.Logger) []io.Closer {
	if _, err := os.Stat(filepath.Join(cfg.RootDirectory, KeptFile)); err != nil {
		return nil
	}
	return hostports.Again(cfg.StaticPodPath, log)
}

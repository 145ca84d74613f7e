package main

import (
	"context"
	"errors"
	"fmt"
	"monopod/internal/config"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// keeperEnd is how long the agent of a run may take to end.
const keeperEnd = 30 * time.Second

func (p *program) downCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down RUN...",
		Short: "Remove the pods that once has left",
		Long: "Remove the pods of runs of `monopod once` that were left, and all that was made for them but their images. A run is\n" +
			"named by the number that `once` has printed.",
	}
	cmd.Flags().BoolVar(&all, "all", false, "all runs that were left")
	flags := p.configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := config.Load(flags, p.env)
		if err != nil {
			return err
		}
		if p.euid() != 0 {
			return errors.New("down must be started by root; try sudo")
		}
		return p.down(cmd.Context(), cfg, args, all)
	}
	return cmd
}

func (p *program) down(ctx context.Context, cfg *config.Loaded, args []string, all bool) error {
	there, err := slots(cfg)
	if err != nil {
		return err
	}
	var kept []*slot
	var names []string
	for _, s := range there {
		if s.kept() {
			kept, names = append(kept, s), append(names, strconv.Itoa(s.number))
		}
	}
	switch {
	case all && len(args) > 0:
		return usagef("name runs, or say --all")
	case !all && len(args) == 0 && len(names) == 0:
		return usagef("which run? There is none")
	case !all && len(args) == 0:
		return usagef("which run? There are: %s", strings.Join(names, " "))
	}
	var errs []error
	for _, arg := range args {
		number, err := strconv.Atoi(arg)
		if err != nil || number < 0 {
			return usagef("%q is no number of a run", arg)
		}
		s := newSlot(cfg, number)
		if !s.kept() {
			errs = append(errs, fmt.Errorf("there is no run %d that was left", number))
			continue
		}
		errs = append(errs, p.downSlot(ctx, s))
	}
	if all {
		for _, s := range kept {
			errs = append(errs, p.downSlot(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// downSlot ends the agent of a run that was left, and removes the run.
func (p *program) downSlot(ctx context.Context, s *slot) error {
	if err := s.takeOver(ctx); err != nil {
		return err
	}
	defer s.release()
	if !s.kept() { // somebody else was faster
		return nil
	}
	if err := p.sweepSlot(ctx, s); err != nil {
		return err
	}
	p.out().Printf("run %d is removed\n", s.number)
	return nil
}

// takeOver locks the slot, which the agent of the run has as long as it lives.
func (s *slot) takeOver(ctx context.Context) error {
	asked := 0
	for deadline := time.Now().Add(keeperEnd); ; sleep(ctx, lookAgain/4) {
		err := s.lock()
		if !isHeld(err) {
			return err
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("run %d: its agent does not end: %w", s.number, err)
		}
		pid := s.keeper()
		if pid == asked {
			continue // a second signal would not let it finish
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("run %d: stop its agent: %w", s.number, err)
		}
		asked = pid
	}
}

// keeper is the process that holds the lock, as the file says; 0: it does not say yet.
func (s *slot) keeper() int {
	b, err := os.ReadFile(filepath.Join(s.root, lockName))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || pid <= 1 || pid == os.Getpid() {
		return 0
	}
	return pid
}

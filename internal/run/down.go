package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/dirlock"
	"monopod/internal/pause"
	"monopod/internal/program"
)

// KeeperEnd bounds how long the daemon of a run takes to end.
const KeeperEnd = 30 * time.Second

// DownCommand returns `monopod down`.
func (p Commands) DownCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "down RUN...",
		Short:   "Remove pods kept by once",
		Long:    "Removes the pods of `monopod once` runs and everything created for them except images. RUN is the number that `once` printed.",
		Example: "monopod down 1\nmonopod down --all",
	}
	cmd.Flags().BoolVar(&all, "all", false, "all kept runs")
	flags := p.ConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := config.Load(flags, p.Env)
		if err != nil {
			return err
		}
		if p.Euid() != 0 {
			return errors.New("down must be started by root; try sudo")
		}
		return p.down(cmd.Context(), cfg, args, all)
	}
	return cmd
}

func (p Commands) down(ctx context.Context, cfg *config.Loaded, args []string, all bool) error {
	there, err := Slots(cfg)
	if err != nil {
		return err
	}
	var kept []*Slot
	var names []string
	for _, s := range there {
		if s.Kept() {
			kept, names = append(kept, s), append(names, strconv.Itoa(s.number))
		}
	}
	switch {
	case all && len(args) > 0:
		return program.Usagef("specify runs, or use --all")
	case !all && len(args) == 0 && len(names) == 0:
		return program.Usagef("no runs are kept")
	case !all && len(args) == 0:
		return program.Usagef("specify RUN; kept runs: %s", strings.Join(names, " "))
	}
	var errs []error
	for _, arg := range args {
		number, err := strconv.Atoi(arg)
		if err != nil || number < 0 {
			return program.Usagef("%q is not the number of a run", arg)
		}
		s := NewSlot(cfg, number)
		if !s.Kept() {
			errs = append(errs, fmt.Errorf("run %d not found", number))
			continue
		}
		errs = append(errs, p.DownSlot(ctx, s))
	}
	if all {
		for _, s := range kept {
			errs = append(errs, p.DownSlot(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// DownSlot stops the daemon of a kept run, and removes the run.
func (p Commands) DownSlot(ctx context.Context, s *Slot) error {
	if err := s.takeOver(ctx); err != nil {
		return err
	}
	defer s.Release()
	if !s.Kept() { // somebody else was faster
		return nil
	}
	if err := p.sweepSlot(ctx, s); err != nil {
		return err
	}
	p.Out().Printf("run %d removed\n", s.number)
	return nil
}

// takeOver stops the daemon of the run, which holds the lock of the slot, and locks the slot.
func (s *Slot) takeOver(ctx context.Context) error {
	asked := 0
	for deadline := time.Now().Add(KeeperEnd); ; pause.For(ctx, daemon.PollInterval/4) {
		err := s.Lock()
		if !dirlock.IsHeld(err) {
			return err
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("run %d: its agent does not exit: %w", s.number, err)
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

// keeper returns the process id in the lock file; 0: it has none yet.
func (s *Slot) keeper() int {
	b, err := os.ReadFile(filepath.Join(s.Root, dirlock.LockName))
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || pid <= 1 || pid == os.Getpid() {
		return 0
	}
	return pid
}

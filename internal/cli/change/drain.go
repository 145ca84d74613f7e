package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod/internal/program"
	"monopod/node/localapi"
)

// drainOptions are the flags of `drain`.
type drainOptions struct {
	program.ClientFlags
	priorityBelow int32
	ignore        []string
	timeout       time.Duration
	untilBoot     bool
}

// DrainCommand returns `monopod drain`.
func (p Commands) DrainCommand() *cobra.Command {
	o := &drainOptions{}
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop all pods until undrain",
		Long: "Stops the pods of the lowest priority first, then those of the next, each within its terminationGracePeriodSeconds. Pods keep their volumes, addresses " +
			"and records and resume after `monopod undrain`. Until then nothing starts, also after restarts of monopod and of the machine: new and changed " +
			"manifests, Jobs and CronJobs wait. `get` and `why` show it.\n\n" +
			"Waits until all pods have stopped, and can be repeated. Exit code 2: timeout; the pods continue to stop.",
		Example: "monopod drain --timeout=5m\nmonopod drain --priority-below=1000000",
		Args:    program.NoArgs,
	}
	f := cmd.Flags()
	o.AddSocket(f)
	f.Int32Var(&o.priorityBelow, "priority-below", 0, "only pods with a lower `priority`")
	f.StringSliceVar(&o.ignore, "ignore", nil, "exclude these pods: `names` or NAMESPACE/NAME, with * and ?; repeatable")
	f.DurationVar(&o.timeout, "timeout", 0, "longest `duration` to wait; 0: no limit")
	f.BoolVar(&o.untilBoot, "until-boot", false, "only until the next boot: for shutdown scripts on machines without systemd-logind")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r := localapi.DrainRequest{Ignore: o.ignore, UntilBoot: o.untilBoot}
		if cmd.Flags().Changed("priority-below") {
			r.PriorityBelow = &o.priorityBelow
		}
		return p.drain(cmd.Context(), o, r)
	}
	return cmd
}

// leastRequest is the minimum time for an answer of the daemon, however short --timeout is, so that the remaining pods are known.
const leastRequest = 500 * time.Millisecond

// drain requests a drain and watches it until it is complete.
func (p Commands) drain(ctx context.Context, o *drainOptions, r localapi.DrainRequest) error {
	c := p.Client(&o.ClientFlags)
	asked, began := ctx, time.Now()
	if o.timeout > 0 {
		var cancel, cancelAsked context.CancelFunc
		asked, cancelAsked = context.WithTimeout(ctx, max(o.timeout, leastRequest))
		defer cancelAsked()
		ctx, cancel = context.WithDeadline(ctx, began.Add(o.timeout))
		defer cancel()
	}
	s, err := c.Drain(asked, r)
	switch {
	case err != nil && errors.Is(asked.Err(), context.DeadlineExceeded):
		return program.CodeError{Code: program.ExitTimeout, Err: fmt.Errorf("monopod did not answer within %s", max(o.timeout, leastRequest))}
	case err != nil:
		return err
	}
	said := map[string]bool{}
	err = c.WatchSchedule(ctx, func(now localapi.Schedule) error {
		for _, name := range s.Stopping {
			if !said[name] && !slices.Contains(now.Stopping, name) {
				p.Out().Printf("pod %s has stopped\n", name)
				said[name] = true
			}
		}
		switch s = now; {
		case !now.Drained:
			return errors.New("another client ended the drain")
		case len(now.Stopping) == 0 && now.Unseen == "":
			return errDrained
		}
		return nil
	})
	switch {
	case errors.Is(err, errDrained):
		p.Out().Println("drained; `monopod undrain` lets pods run again")
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return program.CodeError{Code: program.ExitTimeout, Err: fmt.Errorf("not all pods have stopped within %s: %s", o.timeout, strings.Join(s.Stopping, ", "))}
	case err == nil:
		return ctx.Err()
	}
	return err
}

// errDrained ends the watch when the drain is complete.
var errDrained = errors.New("drained")

// CordonCommand returns `monopod cordon`.
func (p Commands) CordonCommand() *cobra.Command {
	o := &drainOptions{}
	cmd := &cobra.Command{
		Use:     "cordon",
		Short:   "Stop accepting new pods",
		Long:    "Running pods continue and edits of them are carried out. New pods wait, also after restarts of monopod and of the machine. `monopod undrain` ends it.",
		Example: "monopod cordon\nmonopod cordon --until-boot",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := p.Client(&o.ClientFlags).Cordon(cmd.Context(), localapi.DrainRequest{UntilBoot: o.untilBoot})
			return err
		},
	}
	o.AddSocket(cmd.Flags())
	cmd.Flags().BoolVar(&o.untilBoot, "until-boot", false, "only until the next boot")
	return cmd
}

// UndrainCommand returns `monopod undrain`.
func (p Commands) UndrainCommand() *cobra.Command {
	o := &program.ClientFlags{}
	cmd := &cobra.Command{
		Use:     "undrain",
		Aliases: []string{"uncordon"},
		Short:   "Resume after drain or cordon",
		Example: "monopod undrain\nmonopod uncordon",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := p.Client(o).Undrain(cmd.Context())
			return err
		},
	}
	o.AddSocket(cmd.Flags())
	return cmd
}

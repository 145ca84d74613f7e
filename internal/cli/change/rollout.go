package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cli/lookup"
	"monopod/internal/objects"
	"monopod/internal/pause"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localclient"
)

// rollout counts the pods of a workload.
type rollout struct {
	// desired is how many there are to be, target how many of them with the current template; 0 if the kind does not replace pods by itself.
	desired, target int32
	// replicas are those that exist, updated those that run by the current template, ready those of any template.
	replicas, updated, ready int32
	conditions               []condition
}

type condition struct{ Type, Status string }

// rolloutOf reads the numbers of a workload. Other objects have conditions only.
func rolloutOf(i objects.Item) (rollout, error) {
	var o struct {
		Spec struct {
			Replicas       *int32
			UpdateStrategy struct {
				Type          string
				RollingUpdate struct{ Partition int32 }
			}
		}
		Status struct {
			Replicas, UpdatedReplicas, ReadyReplicas                                            int32
			DesiredNumberScheduled, CurrentNumberScheduled, UpdatedNumberScheduled, NumberReady int32
			Conditions                                                                          []condition
		}
	}
	if err := json.Unmarshal(i.Raw, &o); err != nil {
		return rollout{}, err
	}
	s := &o.Status
	r := rollout{desired: 1, replicas: s.Replicas, updated: s.UpdatedReplicas, ready: s.ReadyReplicas, conditions: s.Conditions}
	if o.Spec.Replicas != nil {
		r.desired = *o.Spec.Replicas
	}
	switch i.Kind {
	case "DaemonSet": // none are desired if it is for other machines
		r = rollout{desired: s.DesiredNumberScheduled, target: s.DesiredNumberScheduled, replicas: s.CurrentNumberScheduled, updated: s.UpdatedNumberScheduled, ready: s.NumberReady, conditions: s.Conditions}
	case "Deployment":
		r.target = r.desired
	case "StatefulSet":
		r.target = max(r.desired-o.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
	}
	if o.Spec.UpdateStrategy.Type == "OnDelete" {
		r.target = 0
	}
	return r, nil
}

// begun reports whether a change of the template has reached at least one pod.
func (r *rollout) begun() bool { return r.updated > 0 || r.target == 0 }

// waitsForUpdate reports whether pods still run by an earlier template.
func (r *rollout) waitsForUpdate() bool { return r.updated < r.target }

// missing is what a rollout waits for; empty: it is complete.
func (r *rollout) missing() string {
	switch {
	case r.waitsForUpdate():
		return fmt.Sprintf("%d of %d pods updated", r.updated, r.target)
	case r.replicas > r.desired:
		return fmt.Sprintf("%d old pods not yet removed", r.replicas-r.desired)
	case r.ready < r.desired:
		return fmt.Sprintf("%d of %d pods ready", r.ready, r.desired)
	}
	return ""
}

// missingOf returns what an update lacks to be complete, and an error if it will not be.
func missingOf(ctx context.Context, c *localclient.Client, i objects.Item) (string, error) {
	r, err := rolloutOf(i)
	if err != nil {
		return "", fmt.Errorf("%s/%s cannot be read: %w", strings.ToLower(i.Kind), i.Object.GetName(), err)
	}
	if missing := r.missing(); missing == "" || !r.waitsForUpdate() {
		return missing, nil
	}
	if back := rolledBack(ctx, c, i); len(back) > 0 {
		return "", errors.New(strings.Join(back, "\nmonopod: "))
	}
	return r.missing(), nil
}

// rolledBack returns why pods of a workload keep running by an earlier template.
func rolledBack(ctx context.Context, c *localclient.Client, i objects.Item) (all []string) {
	pods, err := c.Pods(ctx, i.Object.GetNamespace())
	if err != nil {
		return nil
	}
	for n := range pods.Items {
		pod := &pods.Items[n]
		owner := metav1.GetControllerOf(pod)
		if back := pod.Annotations[node.AnnotationRollback]; back != "" && owner != nil && owner.Kind == i.Kind && owner.Name == i.Object.GetName() {
			all = append(all, fmt.Sprintf("pod %s was rolled back: %s", pod.Name, back))
		}
	}
	return all
}

// RolloutCommand returns `monopod rollout`.
func (p Commands) RolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rollout",
		Short:   "Follow the update of a workload",
		Long:    "`monopod rollout status` waits until an update is complete. Roll a pod back with `monopod rollback`, restart a workload with `monopod restart`.",
		Example: "monopod rollout status deploy/web\nmonopod rollout status deploy/web --timeout=2m",
		Args:    program.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return program.Usagef("expected `monopod rollout status KIND/NAME`")
		},
	}
	cmd.AddCommand(p.rolloutStatusCommand())
	return cmd
}

func (p Commands) rolloutStatusCommand() *cobra.Command {
	o := &program.ClientFlags{}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status KIND/NAME",
		Short: "Wait until an update is complete",
		Long: "Waits until all pods of a Deployment, StatefulSet or DaemonSet run by its current template and are ready, and reports each step.\n\n" +
			"Exit code 0: complete; 1: a pod was rolled back, or the object cannot be read; 2: timeout or invalid command line.",
		Example: "monopod rollout status deploy/web\nmonopod rollout status deploy/web --timeout=2m",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := o.ObjectArg(args)
			if err != nil {
				return err
			}
			if target.Kind != "Deployment" && target.Kind != "StatefulSet" && target.Kind != "DaemonSet" {
				return program.Usagef("a %s has no rollout; only Deployment, StatefulSet and DaemonSet have one", target.Kind)
			}
			return p.followRollout(cmd.Context(), p.Client(o), target, timeout)
		},
	}
	o.Add(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "longest `duration` to wait; 0: no limit")
	return cmd
}

// followRollout waits until an update is complete, and prints each step.
func (p Commands) followRollout(ctx context.Context, c *localclient.Client, o program.Object, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	name, last := strings.ToLower(o.Kind)+"/"+o.Key.Name, ""
	for {
		item, err := lookup.FindObject(ctx, c, o)
		_, absent := errors.AsType[*localclient.ConnectError](err)
		if err != nil && ctx.Err() == nil && (!absent || last == "") {
			return err // once it has answered, it is being restarted
		}
		if err == nil {
			missing, err := missingOf(ctx, c, item)
			if err != nil {
				return err
			}
			if missing == "" {
				p.Out().Printf("%s rolled out\n", name)
				return nil
			}
			if missing != last {
				p.Out().Printf("waiting for %s: %s\n", name, missing)
			}
			last = missing
		}
		if pause.For(ctx, objectPeriod); errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.Errs().Printf("monopod: timed out after %s waiting for %s: %s\n", timeout, name, last)
			return program.CodeError{Code: program.ExitTimeout}
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// afterChange waits until the change of an object is carried out; hash is that of the manifest of a pod.
func (p Commands) afterChange(ctx context.Context, c *localclient.Client, o program.Object, hash string, timeout time.Duration) error {
	if o.Kind != "Pod" {
		return p.followRollout(ctx, c, o, timeout)
	}
	return p.await(ctx, c, awaited{goals: map[manifests.Key]goal{o.Key: appliedGoal(hash)}, timeout: timeout, shown: true})
}

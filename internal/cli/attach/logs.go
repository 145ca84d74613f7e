package attach

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cli/lookup"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
)

// annotationDefaultContainer is kubectl's annotation for the container to use when none is named.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// logsOptions are the flags of `logs`.
type logsOptions struct {
	program.ClientFlags
	container  string
	follow     bool
	previous   bool
	timestamps bool
	tail       int64
	limitBytes int64
	since      time.Duration
	sinceTime  string

	allContainers bool
	prefix        bool
	selector      string
}

// LogsCommand returns `monopod logs`.
func (p Commands) LogsCommand() *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use:     "logs POD|KIND/NAME [CONTAINER]",
		Short:   "Print the output of containers",
		Long:    "For a workload or Service (KIND/NAME), prints the log of one of its pods. Output is printed unchanged, escape sequences included.",
		Example: "monopod logs web -f\nmonopod logs deploy/web --tail=20\nmonopod logs -l app=web --all-containers --prefix",
		Args:    program.RangeArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				if o.container != "" && o.container != args[1] {
					return program.Usagef("two containers are given: %s and %s", o.container, args[1])
				}
				o.container = args[1]
			}
			switch {
			case o.allContainers && o.container != "":
				return program.Usagef("give a container or --all-containers, not both")
			case (len(args) == 0) == (o.selector == ""):
				return program.Usagef("expected POD, KIND/NAME or -l LABELS")
			case o.selector != "":
				return p.logs(cmd.Context(), o, nil)
			}
			target, err := o.ObjectArg(args[:1])
			if err != nil {
				return err
			}
			return p.logs(cmd.Context(), o, &target)
		},
	}
	o.Add(cmd.Flags())
	f := cmd.Flags()
	f.StringVarP(&o.container, "container", "c", "", "container `name` (default: the first one)")
	f.BoolVarP(&o.follow, "follow", "f", false, "print new lines until the container ends")
	f.BoolVarP(&o.previous, "previous", "p", false, "output of the previous instance")
	f.BoolVar(&o.timestamps, "timestamps", false, "print the time of each line")
	f.Int64Var(&o.tail, "tail", -1, "`lines` to print from the end; -1: all")
	f.Int64Var(&o.limitBytes, "limit-bytes", 0, "print at most this number of `bytes`; 0: no limit")
	f.DurationVar(&o.since, "since", 0, "only lines newer than this `duration`, for example 5m")
	f.BoolVar(&o.allContainers, "all-containers", false, "all containers of the pod, one after the other (interleaved with -f)")
	f.BoolVar(&o.prefix, "prefix", false, "print pod and container before each line")
	f.StringVarP(&o.selector, "selector", "l", "", "select pods by `labels`")
	f.StringVar(&o.sinceTime, "since-time", "", "only lines after this `time` (RFC 3339)")
	return cmd
}

// query returns the request's parameters, which are named as in the kubelet's API.
func (o *logsOptions) query() (url.Values, error) {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": o.follow, "previous": o.previous, "timestamps": o.timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	if o.tail < -1 || o.limitBytes < 0 || o.since < 0 {
		return nil, program.Usagef("--tail, --limit-bytes and --since cannot be negative")
	}
	if o.tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(o.tail, 10))
	}
	if o.limitBytes > 0 {
		q.Set("limitBytes", strconv.FormatInt(o.limitBytes, 10))
	}
	if o.since > 0 {
		// Whole seconds, rounded up: an extra line is better than a missing one.
		q.Set("sinceSeconds", strconv.FormatInt(int64((o.since+time.Second-1)/time.Second), 10))
	}
	if o.sinceTime != "" {
		if _, err := time.Parse(time.RFC3339, o.sinceTime); err != nil {
			return nil, program.Usagef("--since-time %q is not a time; write it as 2006-01-02T15:04:05Z", o.sinceTime)
		}
		if o.since > 0 {
			return nil, program.Usagef("give --since or --since-time, not both")
		}
		q.Set("sinceTime", o.sinceTime)
	}
	return q, nil
}

// logs prints the log of a target, or of the pods that -l selects.
func (p Commands) logs(ctx context.Context, o *logsOptions, target *program.Object) error {
	q, err := o.query()
	if err != nil {
		return err
	}
	c := p.Client(&o.ClientFlags)
	var pods []corev1.Pod
	if target == nil {
		if pods, err = selectedPods(ctx, c, o); err != nil {
			return err
		}
	} else {
		to, err := lookup.NewCommands(p.Program).Reach(ctx, c, *target)
		if err != nil {
			return err
		}
		pods = []corev1.Pod{*to.Pod}
	}
	if target == nil || o.allContainers || o.prefix {
		if len(pods) == 0 {
			p.Errs().Println("No pods found.")
		}
		return p.manyLogs(ctx, c, o, q, p.logSources(o, pods))
	}
	name := o.container
	if name == "" {
		name = p.defaultContainer(&pods[0])
	}
	if name != "" && !slices.Contains(node.ContainerNames(&pods[0]), name) {
		return fmt.Errorf("container %q not found in pod %q", name, pods[0].Name)
	}
	q.Set("container", name)
	key := manifests.Key{Namespace: pods[0].Namespace, Name: pods[0].Name}
	body, err := c.Log(ctx, key.Namespace, key.Name, q)
	if err != nil && o.follow && ctx.Err() != nil { // a container that has written nothing has no answer yet
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(p.Raw(), body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}

// defaultContainer chooses a container as kubectl does, and prints which one if there are several.
func (p Commands) defaultContainer(pod *corev1.Pod) string {
	names := node.ContainerNames(pod)
	if name := pod.Annotations[annotationDefaultContainer]; name != "" || len(names) == 0 {
		return name
	}
	if len(names) > 1 {
		p.Errs().Printf("Defaulted container %q out of: %s\n", names[0], strings.Join(names, ", "))
	}
	return names[0]
}

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"monopod/internal/cli/check"
	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/program"
	"monopod/internal/run/hostports"
	"monopod/internal/run/outcome"
	"monopod/internal/trial"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/systemd"
)

// trialFlags are the flags that `once` and `up` share.
type trialFlags struct {
	files    []string
	output   string
	junit    string
	json     string
	timeout  time.Duration
	grace    time.Duration
	logLines int
	quiet    bool
	rules    trial.Rules
	// api reports that clients may create pods over the Kubernetes API of the run.
	api bool
}

func (o *trialFlags) add(set *pflag.FlagSet) {
	set.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory of manifests, - for stdin; repeatable")
	set.StringVarP(&o.output, "output", "o", "", "output `format`: table (default) or json")
	set.StringVar(&o.junit, "junit", "", "write a JUnit report to this `file`")
	set.StringVar(&o.json, "json", "", "write the report as JSON to this `file`")
	set.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`duration` to wait, plus grace periods; 0: no limit")
	set.DurationVar(&o.grace, "grace", -1, "longest termination grace period, a `duration` (default: none)")
	set.Lookup("grace").DefValue = "0s" // the text has the default
	set.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress or warnings")
	set.IntVar(&o.logLines, "log-lines", 50, "`lines` of log per container of a failed pod")
	set.IntVar(&o.rules.MaxRestarts, "max-restarts", 3, "`restarts` after which a container has failed; -1: none")
	set.DurationVar(&o.rules.MinReady, "min-ready", time.Second, "time after which pods without readiness probes are Ready")
}

// check validates the flags.
func (o *trialFlags) check() error {
	switch {
	case len(o.files) == 0 && !o.api:
		return program.Usagef("no manifests; use -f FILE, -f DIR or -f - for standard input")
	case o.timeout < 0 || o.rules.MinReady < 0 || o.logLines < 0:
		return program.Usagef("--timeout, --min-ready and --log-lines cannot be negative")
	}
	return program.OneOfOutputs(o.output, "table", "json")
}

// runFlags makes cmd a command that runs pods: it loads the configuration and requires root.
func (p Commands) runFlags(cmd *cobra.Command, o *trialFlags, do func(ctx context.Context, cfg *config.Loaded, args []string) error) {
	cmd.Annotations = map[string]string{program.OwnCodes: "yes"}
	o.add(cmd.Flags())
	flags := p.ConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return err
		}
		cfg, err := config.Load(flags, p.Env)
		if err != nil {
			return err
		}
		if p.Euid() != 0 {
			return fmt.Errorf("%s must be started by root, because it creates containers, mounts and networks; try sudo", cmd.Name())
		}
		systemd.FromEnvironment() // its variables are for the command that is run, which has them from p.env
		return do(cmd.Context(), cfg, args)
	}
}

// gather reads the manifests. Each error is one line, as printed by `validate`.
func (p Commands) gather(o *trialFlags, cfg *config.Loaded) (*Content, []trial.Refusal) {
	options := decode.Options{Source: config.SourceFile, Policy: cfg.Policy(config.SourceFile)}
	all := check.NewCommands(p.Program).AsOneSet(o.files, options)
	c, refused := &Content{}, []trial.Refusal(nil)
	for _, v := range all {
		for _, e := range v.Errors {
			refused = append(refused, trial.Refusal{Where: e.Where(), Text: e.Error()})
		}
		for _, line := range v.Remarks(o.quiet) {
			p.Errs().Println(line)
		}
		if v.Reason == verdict.SubDirectory { // a test that is not run must not look like one that has passed
			refused = append(refused, trial.Refusal{Where: v.File, Text: v.File + ": " + v.Reason})
		}
		if v.Ignored {
			continue
		}
		for _, pod := range v.Loaded {
			c.pods = append(c.pods, o.withGrace(pod))
		}
		for _, w := range v.Workloads {
			c.workloads = append(c.workloads, o.workloadWithGrace(w))
		}
		c.objects = append(c.objects, v.Documents...)
		c.reports = append(c.reports, v.Report(config.SourceFile))
	}
	if len(refused) == 0 && len(c.pods)+len(c.workloads) == 0 && !o.api {
		files := strings.Join(o.files, ", ")
		refused = append(refused, trial.Refusal{Where: files, Text: files + ": there are no pods in it"})
	}
	return c, refused
}

// withGrace limits the grace period of a pod.
func (o *trialFlags) withGrace(pod *manifests.Pod) *manifests.Pod {
	if !o.shorter(&pod.Object.Spec) {
		return pod
	}
	c := &manifests.Pod{Object: pod.Object.DeepCopy(), Origin: pod.Origin}
	c.Object.Spec.TerminationGracePeriodSeconds = o.graceSeconds()
	return c
}

// workloadWithGrace does that for the pods of a workload.
func (o *trialFlags) workloadWithGrace(w *manifests.Object) *manifests.Object {
	t := template(w)
	if t == nil || !o.shorter(&t.Spec) {
		return w
	}
	c := *w
	if copied, ok := w.Object.(interface{ DeepCopyObject() kruntime.Object }); ok {
		c.Object, _ = copied.DeepCopyObject().(metav1.Object)
		template(&c).Spec.TerminationGracePeriodSeconds = o.graceSeconds()
	}
	return &c
}

// shorter reports whether the grace period of a pod exceeds the flag.
func (o *trialFlags) shorter(spec *corev1.PodSpec) bool {
	t := spec.TerminationGracePeriodSeconds
	return o.grace >= 0 && (t == nil || *t > *o.graceSeconds())
}

func (o *trialFlags) graceSeconds() *int64 {
	s := int64((o.grace + time.Second - 1) / time.Second)
	return &s
}

// bringUp starts the pods in a run and waits for them. The stage is nil if nothing was started; the report or the error
// has the reason.
func (p Commands) bringUp(ctx context.Context, cfg *config.Loaded, o *trialFlags, w waitLimits) (g *stage, r trial.Report, err error) {
	began := time.Now()
	r.Pods = []trial.Pod{}
	c, refused := p.gather(o, cfg)
	if len(refused) > 0 {
		r.Result, r.Refused = trial.Failed, refused
		return nil, r, nil
	}
	s, err := p.openSlot(ctx, cfg)
	if err != nil {
		return nil, r, err
	}
	defer func() {
		if g == nil {
			s.Release()
		}
	}()
	subnet, err := s.ChooseSubnet(p.Machine.Runs)
	if err != nil {
		return nil, r, err
	}
	held, err := c.assignPorts()
	if err != nil {
		return nil, r, errors.Join(err, hostports.CloseAll(held))
	}
	open := daemon.OpenRun
	if o.api {
		open = daemon.OpenCluster
	}
	if g, err = p.newStage(ctx, s, s.Config(subnet), c, open); err != nil {
		return nil, r, errors.Join(err, hostports.CloseAll(held), s.clear())
	}
	g.ports, g.fresh, g.quiet = held, true, o.quiet
	if o.api {
		if err := g.writeKubeconfig(o); err != nil {
			return g, r, err
		}
	}
	r, err = g.wait(ctx, trial.New(o.rules, began, c.pods, c.workloads), w)
	if err == nil && r.Result != trial.Interrupted {
		outcome.AddLogs(ctx, g.cfg.Socket, &r, o.logLines)
		if err := outcome.AddCauses(ctx, g.cfg.Socket, &r); err != nil {
			g.logger.Warn("causes are missing in the report", "err", err)
		}
	}
	return g, r, err
}

// assignPorts assigns the free host ports that the pods request.
func (c *Content) assignPorts() (held []io.Closer, err error) {
	take := func(protocol corev1.Protocol, hostIP string) (int32, error) {
		port, closer, err := hostports.Reserve(protocol, hostIP, 0)
		if err == nil {
			held = append(held, closer)
		}
		return port, err
	}
	for i, pod := range c.pods {
		object, err := trial.FreeHostPorts(pod.Object, take)
		if err != nil {
			return held, fmt.Errorf("%s: pod %s: %w", verdict.Place(pod.Origin), pod.Key(), err)
		}
		if object != pod.Object {
			c.pods[i] = &manifests.Pod{Object: object, Origin: pod.Origin}
		}
	}
	for _, w := range c.workloads {
		if t := template(w); t != nil && t.Annotations[trial.AnnotationFreeHostPorts] != "" {
			return held, fmt.Errorf("%s: %s: %s: the pods of a workload cannot share a port; write a Pod", verdict.Place(w.Origin), w, trial.AnnotationFreeHostPorts)
		}
	}
	return held, nil
}

// late returns the error of a run that has timed out.
func (o *trialFlags) late(r trial.Report) error {
	err := fmt.Errorf("not all pods are up after %s", config.DurationText(o.timeout))
	if r.Reason != "" {
		err = fmt.Errorf("%w: %s", err, r.Reason)
	}
	return err
}

// file writes the requested reports.
func (o *trialFlags) file(r trial.Report) error {
	return errors.Join(outcome.Write(o.junit, r.WriteJUnit), outcome.Write(o.json, r.WriteJSON))
}

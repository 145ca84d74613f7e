package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
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
	"monopod/internal/podtable"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/run/hostports"
	"monopod/internal/trial"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/localclient"
	"monopod/node/systemd"
)

// logPatience bounds reading the log of one container.
const logPatience = 5 * time.Second

// trialFlags are the flags that `once` and `up` share.
type trialFlags struct {
	files    []string
	output   string
	junit    string
	json     string
	timeout  time.Duration
	grace    time.Duration
	logLines int
	rules    trial.Rules
	// api reports that clients may create pods over the Kubernetes API of the run.
	api bool
}

func (o *trialFlags) add(set *pflag.FlagSet) {
	set.StringArrayVarP(&o.files, "filename", "f", nil, "`file` or directory with manifests, or - for standard input; repeatable")
	set.StringVarP(&o.output, "output", "o", "", "output `format`: table (default) or json")
	set.StringVar(&o.junit, "junit", "", "write a JUnit report to this `file`")
	set.StringVar(&o.json, "json", "", "write the report as JSON to this `file`")
	set.DurationVar(&o.timeout, "timeout", 5*time.Minute, "longest `duration` to wait for pods; 0: no limit")
	set.DurationVar(&o.grace, "grace", -1, "longest termination grace period, a `duration` (default: none)")
	set.Lookup("grace").DefValue = "0s" // the text has the default
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
	var all []*verdict.Verdict
	options := decode.Options{Source: config.SourceFile, Policy: cfg.Policy(cfg.StaticPodPathSecurity)}
	for _, path := range o.files {
		all = append(all, check.NewCommands(p.Program).Verdicts(path, options)...)
	}
	verdict.Conflicts(all)
	c, refused := &Content{}, []trial.Refusal(nil)
	for _, v := range all {
		for _, e := range v.Errors {
			refused = append(refused, trial.Refusal{Where: e.Where(), Text: e.Error()})
		}
		for _, note := range v.Notes {
			p.Errs().Println(note)
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
	g.ports, g.fresh = held, true
	if o.api {
		if err := g.writeKubeconfig(o); err != nil {
			return g, r, err
		}
	}
	r, err = g.wait(ctx, trial.New(o.rules, began, c.pods, c.workloads), w)
	if err == nil && r.Result != trial.Interrupted {
		g.addLogs(ctx, &r, o.logLines)
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

// addLogs adds the last log lines of pods that are not up to the report.
func (g *stage) addLogs(ctx context.Context, r *trial.Report, lines int) {
	client := localclient.New(g.cfg.Socket)
	for i := range r.Pods {
		pod := &r.Pods[i]
		if pod.Result == trial.OK || lines == 0 {
			continue
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			// A container that has not run has no log.
			if text, err := readLog(ctx, client, *pod, url.Values{"container": {c}, "tailLines": {strconv.Itoa(lines)}}); err == nil && text != "" {
				pod.Logs = append(pod.Logs, trial.Log{Container: c, Text: text})
			}
		}
	}
}

func readLog(ctx context.Context, client *localclient.Client, pod trial.Pod, q url.Values) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	body, err := client.Log(ctx, pod.Namespace, pod.Name, q)
	if err != nil {
		return "", err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, 1<<20))
	return string(b), err
}

// tell prints the report of a run on w, and the last log lines of pods that are not up on stderr.
func (p Commands) tell(w printer.Printer, r trial.Report, views []trial.View) {
	t := &program.Table{W: w}
	now := time.Now()
	rows := [][]string{{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "IP", "RESULT", "AFTER", "REASON"}}
	for _, pod := range r.Pods {
		row := podtable.PodRow{Namespace: pod.Namespace, Name: pod.Name, Ready: "-", Status: "-", Restarts: "-", IP: "<none>"}
		if i := slices.IndexFunc(views, func(v trial.View) bool { return v.Pod.Namespace == pod.Namespace && v.Pod.Name == pod.Name }); i >= 0 {
			row = podtable.RowOf(views[i].Pod, now)
		}
		rows = append(rows, []string{row.Namespace, row.Name, row.Ready, row.Status, row.Restarts, row.IP, string(pod.Result), after(pod.Seconds), printer.OneLine(pod.Reason)})
	}
	for _, o := range r.Workloads {
		rows = append(rows, []string{o.Namespace, strings.ToLower(o.Kind) + "/" + o.Name, "", "", "", "", string(o.Result), after(o.Seconds), printer.OneLine(o.Reason)})
	}
	if len(rows) > 1 {
		t.PrintAll(rows)
	}
	for _, pod := range r.Pods {
		for _, l := range pod.Logs {
			p.Errs().Printf("--- last lines of pod %s, container %s:\n", pod.Key(), l.Container)
			p.Errs().Block("    ", l.Text)
		}
	}
	for _, m := range r.Refused {
		p.Errs().Println(m.Text)
	}
}

func after(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) + "s" }

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
	return errors.Join(writeReport(o.junit, r.WriteJUnit), writeReport(o.json, r.WriteJSON))
}

func writeReport(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("report %s: %w", path, err)
	}
	return nil
}

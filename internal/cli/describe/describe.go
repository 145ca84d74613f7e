package describe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/cli/lookup"
	"monopod/internal/model"
	"monopod/internal/needs"
	"monopod/internal/offline"
	"monopod/internal/podtable"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/internal/units"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localclient"
)

// DescribeCommand returns `monopod describe`.
func (p Commands) DescribeCommand() *cobra.Command {
	o := &program.ClientFlags{}
	cmd := &cobra.Command{
		Use:     "describe POD | KIND NAME | KIND/NAME",
		Short:   "Show details of a pod or object",
		Long:    "For a pod: its source, state, problems, next retry and latest events. For a workload or Service: its state and its pods.",
		Example: "monopod describe pod web\nmonopod describe deploy/web",
		Args:    program.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := o.ObjectArg(args)
			switch {
			case err != nil:
				return err
			case target.Kind != "Pod":
				return p.describeObject(cmd.Context(), p.Client(o), target)
			}
			return p.describe(cmd.Context(), p.Client(o), target.Key)
		},
	}
	o.Add(cmd.Flags())
	return cmd
}

func (p Commands) describe(ctx context.Context, c *localclient.Client, key manifests.Key) error {
	pod, err := lookup.FindPod(ctx, c, key)
	if err != nil {
		return err
	}
	inputs, err := c.Inputs(ctx)
	if err != nil {
		return err
	}
	happened, err := c.Events(ctx, offline.PodEvents(pod.Namespace, pod.Name))
	if err != nil {
		return err
	}
	d := &description{w: p.Out(), now: time.Now(), probes: probesOf(pod)}
	if waits := func(s corev1.ContainerStatus) bool { return s.State.Waiting != nil }; slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), waits) {
		if d.pulls, err = c.Pulls(ctx, needs.ImagesOf(&pod.Spec)); err != nil {
			return err
		}
	}
	d.head(pod, inputsOf(pod, inputs))
	d.containers("Init Containers", pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	d.containers("Containers", pod.Spec.Containers, pod.Status.ContainerStatuses)
	d.containers("Ephemeral Containers", ephemeral(pod), pod.Status.EphemeralContainerStatuses)
	d.conditions(pod.Status.Conditions)
	d.volumes(pod.Spec.Volumes)
	d.events(happened.Items)
	return nil
}

// ephemeral returns the ephemeral containers of a pod.
func ephemeral(pod *corev1.Pod) []corev1.Container {
	var all []corev1.Container
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, *manifests.AsContainer(&pod.Spec.EphemeralContainers[i]))
	}
	return all
}

// inputsOf returns the inputs that concern the pod and have a problem or a note.
func inputsOf(pod *corev1.Pod, inputs []model.Input) []model.Input {
	var out []model.Input
	key := pod.Namespace + "/" + pod.Name
	source := pod.Annotations[node.AnnotationSource]
	for _, i := range inputs {
		if i.State != "Accepted" && (slices.Contains(i.Pods, key) || source == i.Input || strings.HasPrefix(source, i.Input+":")) {
			out = append(out, i)
		}
	}
	return out
}

// description prints an object, one field per line.
type description struct {
	w      printer.Printer
	now    time.Time
	indent string
	probes []model.Probe
	pulls  []model.Pull
}

// field prints "Name: value" unless the value is empty; further lines of the value are indented.
func (d *description) field(name, value string) {
	if value != "" {
		d.list(name, printer.SplitLines(value))
	}
}

// list prints the first item after the name and the others below it.
func (d *description) list(name string, items []string) {
	for _, item := range items {
		label := ""
		if name != "" {
			label = name + ":"
		}
		d.w.Printf("%s%-*s %s\n", d.indent, 18-len(d.indent), label, item)
		name = ""
	}
}

func (d *description) in(f func()) {
	old := d.indent
	d.indent += "  "
	f()
	d.indent = old
}

func (d *description) time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.Local().Format(time.RFC3339), duration.HumanDuration(d.now.Sub(t)))
}

func (d *description) head(pod *corev1.Pod, inputs []model.Input) {
	notes := maps.Clone(pod.Annotations)
	for _, own := range []string{node.AnnotationSource, node.AnnotationWhy, node.AnnotationNextTry, node.AnnotationProbes, node.AnnotationManifest, node.AnnotationPending, node.AnnotationRevision, node.AnnotationRollback, node.AnnotationWritten, node.AnnotationUpdate} {
		delete(notes, own)
	}
	d.field("Name", pod.Name)
	d.field("Namespace", pod.Namespace)
	d.field("Source", pod.Annotations[node.AnnotationSource])
	for _, i := range inputs {
		d.list("Input "+string(i.State), or2(i.Errors, i.Input))
	}
	d.field("Revision", pod.Annotations[node.AnnotationRevision])
	d.field("Rollback", pod.Annotations[node.AnnotationRollback])
	d.field("Update", pod.Annotations[node.AnnotationUpdate])
	d.field("Status", podtable.PodStatus(pod))
	d.field("Why", pod.Annotations[node.AnnotationWhy])
	var pulls []string
	for _, p := range d.pulls {
		pulls = append(pulls, fmt.Sprintf("%s: %s, started %s ago", p.Image, units.Progress(p.Done, p.Total), units.Ago(p.Since, d.now)))
	}
	d.list("Pulling", pulls)
	d.field("Next Try", d.nextTry(pod.Annotations[node.AnnotationNextTry]))
	d.field("Phase", string(pod.Status.Phase))
	d.field("Reason", pod.Status.Reason)
	d.field("Message", pod.Status.Message)
	d.field("UID", string(pod.UID))
	if pod.Status.StartTime != nil {
		d.field("Start Time", d.time(pod.Status.StartTime.Time))
	}
	d.field("Node", strings.TrimSuffix(pod.Spec.NodeName+"/"+pod.Status.HostIP, "/"))
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	d.field("IPs", strings.Join(ips, ", "))
	d.field("QoS Class", string(pod.Status.QOSClass))
	d.field("Restart Policy", string(pod.Spec.RestartPolicy))
	d.list("Labels", pairs(pod.Labels))
	d.list("Annotations", pairs(notes))
}

func or2(list []string, other string) []string {
	if len(list) == 0 {
		return []string{other}
	}
	return list
}

func pairs(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return out
}

func (d *description) nextTry(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	if wait := t.Sub(d.now); wait > 0 {
		return fmt.Sprintf("%s (in %s)", t.Local().Format(time.RFC3339), duration.HumanDuration(wait))
	}
	return "now"
}

func (d *description) containers(title string, specs []corev1.Container, statuses []corev1.ContainerStatus) {
	if len(specs) == 0 {
		return
	}
	d.w.Printf("%s:\n", title)
	for i := range specs {
		c := &specs[i]
		st := &corev1.ContainerStatus{}
		for j := range statuses {
			if statuses[j].Name == c.Name {
				st = &statuses[j]
			}
		}
		d.in(func() {
			d.w.Printf("%s%s:\n", d.indent, c.Name)
			d.in(func() { d.container(c, st) })
		})
	}
}

func (d *description) container(c *corev1.Container, st *corev1.ContainerStatus) {
	d.field("Container ID", st.ContainerID)
	d.field("Image", c.Image)
	d.field("Image ID", st.ImageID)
	d.field("Command", strings.Join(c.Command, " "))
	d.field("Args", strings.Join(c.Args, " "))
	d.list("Ports", portLines(c.Ports))
	d.state("State", st.State)
	d.state("Last State", st.LastTerminationState)
	if st.Name != "" {
		d.field("Ready", fmt.Sprint(st.Ready))
		d.field("Restart Count", fmt.Sprint(st.RestartCount))
	}
	d.probe("Startup", c.Name, c.StartupProbe)
	d.probe("Liveness", c.Name, c.LivenessProbe)
	d.probe("Readiness", c.Name, c.ReadinessProbe)
	d.list("Limits", resourceLines(c.Resources.Limits))
	d.list("Requests", resourceLines(c.Resources.Requests))
	var mounts []string
	for _, m := range c.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		mounts = append(mounts, fmt.Sprintf("%s from %s (%s)", m.MountPath, m.Name, mode))
	}
	d.list("Mounts", mounts)
}

func portLines(ports []corev1.ContainerPort) []string {
	var out []string
	for _, p := range ports {
		line := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
		if p.HostPort > 0 {
			line += fmt.Sprintf(" on host port %s%d", hostPrefix(p.HostIP), p.HostPort)
		}
		out = append(out, line)
	}
	return out
}

func hostPrefix(ip string) string {
	if ip == "" {
		return ""
	}
	return ip + " "
}

func resourceLines(r corev1.ResourceList) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		q := r[name]
		out = append(out, fmt.Sprintf("%s %s", name, q.String()))
	}
	return out
}

// state prints a container state with its details.
func (d *description) state(name string, s corev1.ContainerState) {
	switch {
	case s.Waiting != nil:
		d.field(name, "Waiting")
		d.in(func() { d.field("Reason", s.Waiting.Reason); d.field("Message", s.Waiting.Message) })
	case s.Running != nil:
		d.field(name, "Running")
		d.in(func() { d.field("Started", d.time(s.Running.StartedAt.Time)) })
	case s.Terminated != nil:
		t := s.Terminated
		d.field(name, "Terminated")
		d.in(func() {
			d.field("Reason", t.Reason)
			d.field("Exit Code", fmt.Sprint(t.ExitCode))
			d.field("Message", t.Message)
			d.field("Started", d.time(t.StartedAt.Time))
			d.field("Finished", d.time(t.FinishedAt.Time))
		})
	}
}

func (d *description) conditions(conditions []corev1.PodCondition) {
	if len(conditions) == 0 {
		return
	}
	d.w.Println("Conditions:")
	t := &program.Table{W: d.w}
	rows := [][]string{{"  TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"}}
	for _, c := range conditions {
		since := ""
		if !c.LastTransitionTime.IsZero() {
			since = duration.HumanDuration(d.now.Sub(c.LastTransitionTime.Time))
		}
		rows = append(rows, []string{"  " + string(c.Type), string(c.Status), since, c.Reason, c.Message})
	}
	t.PrintAll(rows)
}

func (d *description) volumes(volumes []corev1.Volume) {
	if len(volumes) == 0 {
		return
	}
	d.w.Println("Volumes:")
	d.in(func() {
		for i := range volumes {
			d.field(volumes[i].Name, volumeText(&volumes[i]))
		}
	})
}

package change

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cli/lookup"
	"monopod/internal/cli/view"
	"monopod/internal/objects"
	"monopod/internal/pause"
	"monopod/internal/program"
	"monopod/internal/progress"
	"monopod/internal/run/shown"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// goal is the condition that a pod must meet.
type goal struct {
	// what describes it, as "condition Ready".
	what string
	// met checks an existing pod; gone reports that a missing pod meets the goal.
	met  func(*corev1.Pod) bool
	gone bool
	// lost reports that the pod ended in a state from which the goal cannot be met; nil never does.
	lost func(*corev1.Pod) bool
	// hash is the hash of the manifest that must run; empty means any.
	hash string
}

// goneGoal is met when the pod does not exist.
func goneGoal() goal {
	return goal{what: "deletion", met: func(*corev1.Pod) bool { return false }, gone: true}
}

// appliedGoal is met when the manifest with this hash was applied and the pod is Ready or completed.
func appliedGoal(hash string) goal {
	current := func(p *corev1.Pod) bool { return p.Annotations[node.AnnotationManifest] == hash }
	return goal{
		what: "condition Ready", hash: hash,
		met: func(p *corev1.Pod) bool {
			return current(p) && (conditionStatus(p, string(corev1.PodReady)) == corev1.ConditionTrue || p.Status.Phase == corev1.PodSucceeded)
		},
		lost: func(p *corev1.Pod) bool { return current(p) && p.Status.Phase == corev1.PodFailed && atRest(p) },
	}
}

// settled reports whether the pod runs as its manifest says. Until then its state is that of an earlier manifest.
func settled(p *corev1.Pod) bool { return p.Annotations[node.AnnotationPending] == "" }

// conditionGoal parses "Ready" or "Ready=False".
func conditionGoal(text string) goal {
	kind, want, explicit := strings.Cut(text, "=")
	if !explicit {
		want = string(corev1.ConditionTrue)
	}
	g := goal{
		what: "condition " + text,
		met: func(p *corev1.Pod) bool {
			return settled(p) && strings.EqualFold(string(conditionStatus(p, kind)), want)
		},
	}
	if strings.EqualFold(want, string(corev1.ConditionTrue)) {
		g.lost = atRest
	}
	return g
}

func phaseGoal(phase string) goal {
	return goal{
		what: "phase " + phase,
		met:  func(p *corev1.Pod) bool { return settled(p) && strings.EqualFold(string(p.Status.Phase), phase) },
		lost: atRest,
	}
}

func conditionStatus(p *corev1.Pod, kind string) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if strings.EqualFold(string(c.Type), kind) {
			return c.Status
		}
	}
	return ""
}

// atRest reports whether the pod has ended and will not be restarted.
func atRest(p *corev1.Pod) bool {
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return ended && settled(p) && p.Annotations[node.AnnotationNextTry] == ""
}

// parseGoal parses the value of --for.
func parseGoal(text string) (goal, error) {
	kind, value, _ := strings.Cut(text, "=")
	switch {
	case text == "delete":
		return goneGoal(), nil
	case kind == "condition" && value != "":
		return conditionGoal(value), nil
	case kind == "phase" && slices.ContainsFunc(phases(), func(p corev1.PodPhase) bool { return strings.EqualFold(string(p), value) }):
		return phaseGoal(value), nil
	case kind == "phase":
		return goal{}, program.Usagef("a pod has no phase %q; its phases are Pending, Running, Succeeded, Failed and Unknown", value)
	}
	return goal{}, program.Usagef("invalid --for=%s; expected condition=Ready, phase=Running or delete", text)
}

func phases() []corev1.PodPhase {
	return []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}
}

// awaited are pods and their goals.
type awaited struct {
	goals   map[manifests.Key]goal
	timeout time.Duration
	// met is called for each pod that reached its goal; nil disables it.
	met func(manifests.Key, goal)
	// shown: progress is shown.
	shown bool
}

// waitOptions are the flags of wait.
type waitOptions struct {
	program.ClientFlags
	waitFor
	selector      string
	allNamespaces bool
}

// WaitCommand returns `monopod wait`.
func (p Commands) WaitCommand() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "wait POD|KIND/NAME...|[KIND] -l LABELS",
		Short: "Wait for a condition on objects",
		Long: "Waits until each object has a condition (`--for=condition=Ready`, `--for=condition=Ready=False`), is in a phase (`--for=phase=Succeeded`) or is gone " +
			"(`--for=delete`). An object that does not exist yet is waited for, and so is a change that is accepted but not carried out. Jobs have the conditions " +
			"Complete and Failed, Deployments Available; all workloads but Jobs and CronJobs have Ready, for which all pods must be updated. A condition that the " +
			"kind does not have is refused at once. With -l, waits for the objects that match when the command starts.\n\n" +
			"Exit code 0: the condition is met; 1: an object ended in another state or was rolled back, cannot be read, or -l selects nothing; 2: timeout or " +
			"invalid command line.",
		Example: "monopod wait web\nmonopod wait deploy/web --for=condition=available --timeout=2m\nmonopod wait job/migrate --for=condition=complete",
		Args:    cobra.MinimumNArgs(0),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.wait(cmd.Context(), o, args) },
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringVar(&o.until, "for", "condition=Ready", "`condition` to wait for: condition=NAME[=VALUE], phase=PHASE or delete")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "longest `duration` to wait; 0: no limit")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "select by `labels`; pods unless KIND is given")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with -l: all namespaces (the default)")
	return cmd
}

func (p Commands) wait(ctx context.Context, o *waitOptions, args []string) error {
	g, err := parseGoal(o.until)
	if err != nil {
		return err
	}
	c := p.Client(&o.ClientFlags)
	all, err := p.waitedFor(ctx, c, o, args)
	if err != nil {
		return err
	}
	goals := map[manifests.Key]goal{}
	for _, one := range all {
		if one.Kind == "Pod" {
			goals[one.Key] = g
			continue
		}
		if err := waitable(one.Kind, o.until); err != nil {
			return err
		}
	}
	switch {
	case len(goals) == 0:
		return p.waitObjects(ctx, c, all, o.waitFor)
	case len(goals) < len(all) && slices.ContainsFunc(all, func(o program.Object) bool { return o.Kind != "Pod" }):
		return program.Usagef("wait for pods or for other objects, not for both at once")
	}
	met := func(key manifests.Key, _ goal) { p.Out().Printf("pod/%s condition met\n", key.Name) }
	return p.await(ctx, c, awaited{goals: goals, timeout: o.timeout, met: met})
}

// waitedFor returns the named or selected pods.
func (p Commands) waitedFor(ctx context.Context, c *localclient.Client, o *waitOptions, args []string) ([]program.Object, error) {
	switch {
	case o.selector != "":
		return p.waitSelected(ctx, c, o, args)
	case o.allNamespaces:
		return nil, program.Usagef("--all-namespaces is for -l")
	case len(args) == 0:
		return nil, program.Usagef("expected POD, KIND/NAME or -l LABELS")
	}
	return o.WaitArgs(args)
}

// waitSelected returns the objects of a kind selected by -l.
func (p Commands) waitSelected(ctx context.Context, c *localclient.Client, o *waitOptions, args []string) ([]program.Object, error) {
	kind := "Pod"
	if len(args) > 0 {
		known := false
		if kind, _, known = objects.Find(args[0]); !known || len(args) > 1 {
			return nil, program.Usagef("give names or -l, not both; before -l there may be a kind, as in `wait deploy -l app=web`")
		}
	}
	chosen, err := lookup.ParseSelector(o.selector)
	if err != nil {
		return nil, err
	}
	if err := waitable(kind, o.until); err != nil {
		return nil, err
	}
	list := view.GetOptions{ClientFlags: o.ClientFlags, Chosen: chosen}
	if o.allNamespaces {
		list.Namespace = ""
	}
	items, err := view.NewCommands(p.Program).ListItems(ctx, c, &list, kind)
	if err != nil {
		return nil, err
	}
	var all []program.Object
	for _, i := range items {
		all = append(all, program.Object{Kind: kind, Key: manifests.Key{Namespace: i.Object.GetNamespace(), Name: i.Object.GetName()}})
	}
	if len(all) == 0 && o.until != "delete" {
		return nil, fmt.Errorf("no %s has the labels %s", strings.ToLower(kind), o.selector)
	}
	return all, nil
}

// errMet ends a watch when all goals are met.
var errMet = errors.New("all goals are met")

// await waits until all pods have reached their goals.
func (p Commands) await(ctx context.Context, c *localclient.Client, a awaited) error {
	if len(a.goals) == 0 {
		return nil
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	w := newWaiting(a)
	w.progress = p.Progress(ctx, !a.shown, func(ctx context.Context, r *progress.Reporter) { shown.Pulls(ctx, r, c) })
	err := w.watch(ctx, c)
	w.progress.Stop() // before other output
	lost, isLost := errors.AsType[lostError](err)
	switch {
	case errors.Is(err, errMet):
		return nil
	case isLost:
		p.Errs().Printf("monopod: %s\n", lost)
		return program.CodeError{Code: program.ExitError}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		for _, key := range slices.SortedFunc(maps.Keys(w.left), manifests.Key.Compare) {
			p.Errs().Printf("monopod: timed out after %s waiting for %s of pod %s: %s\n", a.timeout, w.left[key].what, key, w.state(key))
		}
		return program.CodeError{Code: program.ExitTimeout}
	case err == nil:
		return ctx.Err()
	}
	return err
}

// waiting is the state of a watch.
type waiting struct {
	awaited
	// left has the pods that have not reached their goal, pods the latest state of all.
	left map[manifests.Key]goal
	pods map[manifests.Key]*corev1.Pod
	// before are the rollbacks of pods when they were first observed; empty for none.
	before map[manifests.Key]string
	// seen means that the initial list is complete: a pod that is not in pods does not exist.
	seen     bool
	progress *progress.Reporter
}

func newWaiting(a awaited) *waiting {
	return &waiting{awaited: a, left: maps.Clone(a.goals), pods: map[manifests.Key]*corev1.Pod{}, before: map[manifests.Key]string{}}
}

// rewatch is the pause after a daemon has exited during the watch: it is probably being restarted.
const rewatch = 200 * time.Millisecond

// watch watches all pods, even over restarts of the daemon.
func (w *waiting) watch(ctx context.Context, c *localclient.Client) error {
	for ended := false; ; {
		err := c.WatchAll(ctx, w.see)
		_, absent := errors.AsType[*localclient.ConnectError](err)
		ended = ended || errors.Is(err, localclient.ErrEnded)
		if ctx.Err() != nil || !ended || !absent && !errors.Is(err, localclient.ErrEnded) {
			return err
		}
		clear(w.pods)
		w.seen = false
		pause.For(ctx, rewatch)
	}
}

// lostError means that a pod will not reach its goal.
type lostError string

// Error implements error.
func (e lostError) Error() string { return string(e) }

// takenBack returns why a pod no longer runs the revision that its goal is about, or an empty string. A rollback before the
// wait counts only if the goal names a manifest.
func (w *waiting) takenBack(key manifests.Key, g goal, pod *corev1.Pod) string {
	rollback := pod.Annotations[node.AnnotationRollback]
	if g.hash != "" {
		if pod.Annotations[node.AnnotationWritten] != g.hash {
			return ""
		}
		return rollback
	}
	if pod.Annotations[node.AnnotationRevision] == "" { // nobody has decided yet
		return ""
	}
	before, known := w.before[key]
	if !known {
		w.before[key] = rollback
	}
	if !known || rollback == before {
		return ""
	}
	return rollback
}

// see handles an event; an error ends the watch.
func (w *waiting) see(e localclient.PodEvent) error {
	defer w.show()
	key := manifests.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}
	g, wanted := w.left[key]
	switch {
	case e.Type == localapi.Bookmark:
		w.seen = true
		for _, key := range slices.SortedFunc(maps.Keys(w.left), manifests.Key.Compare) {
			if w.left[key].gone && w.pods[key] == nil {
				w.reached(key)
			}
		}
	case !wanted:
		return nil
	case e.Type == "DELETED":
		delete(w.pods, key)
		if g.gone {
			w.reached(key)
		}
	default:
		w.pods[key] = &e.Object
		return w.look(key, g, &e.Object)
	}
	return w.ended()
}

// look compares a pod with its goal.
func (w *waiting) look(key manifests.Key, g goal, pod *corev1.Pod) error {
	back := w.takenBack(key, g, pod)
	switch {
	case back != "" && g.lost != nil:
		return lostError(fmt.Sprintf("pod %s was rolled back: %s", key, back))
	case g.met(pod):
		w.reached(key)
	case g.lost != nil && g.lost(pod):
		return lostError(fmt.Sprintf("pod %s has terminated: it is %s%s", key, pod.Status.Phase, whyText(pod)))
	}
	return w.ended()
}

// ended returns errMet when all goals are met.
func (w *waiting) ended() error {
	if len(w.left) == 0 {
		return errMet
	}
	return nil
}

func (w *waiting) reached(key manifests.Key) {
	if w.met != nil {
		w.met(key, w.left[key])
	}
	delete(w.left, key)
}

// state describes a pod that has not reached its goal.
func (w *waiting) state(key manifests.Key) string {
	pod := w.pods[key]
	switch {
	case pod != nil:
		state := "it is " + string(pod.Status.Phase)
		if !settled(pod) {
			state += ", and its change has not been carried out yet"
		}
		return state + whyText(pod)
	case !w.seen:
		return "the daemon has not reported it yet"
	}
	return "it does not exist"
}

func whyText(pod *corev1.Pod) string {
	if why := pod.Annotations[node.AnnotationWhy]; why != "" {
		return ": " + why
	}
	return ""
}

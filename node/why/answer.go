package why

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests/explain"
)

// About is One with a name and All without. Without a name, namespace was applied when the facts were collected.
func (f Facts) About(namespace, name string) Answer {
	if name == "" {
		return All(f)
	}
	return One(f, namespace, name)
}

// All answers about everything that is not fine.
func All(f Facts) Answer {
	f.Runtime = cmp.Or(f.Runtime, blindness(f.Pods))
	a := Answer{Chains: []Chain{}}
	a.Chains = append(a.Chains, f.agent()...)
	for i := range f.Inputs {
		if c, ok := f.input(&f.Inputs[i]); ok {
			a.Chains = append(a.Chains, c)
		}
	}
	for _, u := range f.Unfit {
		a.Chains = append(a.Chains, u.chain())
	}
	pods := sortedPods(f.Pods)
	bad := 0
	for _, p := range pods {
		c := f.pod(p)
		if c.Fine || f.told(&c) {
			continue
		}
		bad++
		a.Chains = append(a.Chains, c)
	}
	a.Fine = len(a.Chains) == 0
	a.Text = f.summary(bad, len(a.Chains)-bad)
	return a
}

// blindness is why the runtime that was open cannot be asked about some pod; empty: it can.
func blindness(pods []Pod) string {
	for i := range pods {
		if t := &pods[i].Trouble; t.Kind == model.TroubleBlind {
			return cmp.Or(t.Message, t.Text)
		}
	}
	return ""
}

func sortedPods(pods []Pod) []Pod {
	pods = slices.Clone(pods)
	sort.Slice(pods, func(i, j int) bool { return pods[i].key() < pods[j].key() })
	return pods
}

// told reports whether the chain of a pod only repeats another chain of the answer.
func (f Facts) told(c *Chain) bool {
	causes := 0
	for _, s := range c.Steps {
		if s.Kind == Cause {
			causes++
		}
	}
	if causes != 1 {
		return false
	}
	switch c.Reason {
	case cause.InputRefused:
		return true // the chain of the file says which pods go on
	case cause.RuntimeDown:
		return f.Runtime != ""
	case cause.DaemonDown:
		return !slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Kind == Output || s.Kind == Events })
	}
	return false
}

func (f Facts) summary(bad, others int) string {
	switch {
	case bad+others == 0 && len(f.Pods) == 0:
		return "all is fine, but there are no pods: put a manifest into " + cmp.Or(f.Places.Manifests, "a source")
	case bad+others == 0:
		return fmt.Sprintf("all is fine: %s", countPods(len(f.Pods)))
	case f.Daemon != "":
		return f.silence() + "; this is the state on disk"
	case bad == 0:
		return fmt.Sprintf("all pods are fine, but %s", things(others))
	case others == 0:
		return fmt.Sprintf("%d of %s %s not fine", bad, countPods(len(f.Pods)), isAre(bad))
	}
	return fmt.Sprintf("%d of %s %s not fine, and %s", bad, countPods(len(f.Pods)), isAre(bad), things(others))
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func countPods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

func things(n int) string {
	if n == 1 {
		return "there is 1 other problem"
	}
	return fmt.Sprintf("there are %d other problems", n)
}

// silence says in short why the agent could not be asked.
func (f Facts) silence() string {
	if f.Hangs {
		return "monopod does not answer"
	}
	return "monopod is not running"
}

// agent is about the agent itself, and its runtime.
func (f Facts) agent() []Chain {
	switch {
	case f.Hangs:
		c := Chain{Text: f.silence(), Reason: cause.DaemonDown, Steps: []Step{
			{Kind: Cause, Reason: cause.DaemonDown, Text: f.Daemon},
			{Kind: Next, Text: "running pods continue; crashed ones may not be restarted, and manifests may not be read"},
		}}
		for _, text := range f.Instance.Restart() {
			c.Steps = append(c.Steps, Step{Kind: Action, Text: text})
		}
		return []Chain{c}
	case f.Daemon != "":
		return []Chain{{Text: f.silence(), Reason: cause.DaemonDown, Steps: []Step{
			{Kind: Cause, Reason: cause.DaemonDown, Text: f.Daemon},
			{Kind: Next, Text: "running pods continue; crashed ones are not restarted, and no manifest is read"},
			{Kind: Action, Text: f.Instance.Start()},
		}}}
	case f.Runtime != "":
		return []Chain{{Text: "the runtime does not respond", Reason: cause.RuntimeDown, Steps: []Step{
			{Kind: Cause, Reason: cause.RuntimeDown, Text: oneLine(f.Runtime)},
			{Kind: Next, Text: "retry every few seconds; running containers continue, and nothing is changed meanwhile"},
			f.runtimeStep(),
		}}}
	}
	return nil
}

// One answers about a pod, or about what a person may mean by its name.
func One(f Facts, namespace, name string) Answer {
	key := namespace + "/" + name
	pods := sortedPods(f.Pods)
	if i := slices.IndexFunc(pods, func(p Pod) bool { return p.key() == key }); i >= 0 {
		return f.answer(f.pod(pods[i]))
	}
	if chains := f.workload(pods, namespace, name); len(chains) > 0 {
		return f.answer(chains...)
	}
	for _, u := range f.Unfit {
		if u.Namespace == namespace && u.Name == name {
			return f.answer(u.chain())
		}
	}
	if o := f.named(namespace, name); o != nil {
		return f.answer(f.onlyRefused(key, o))
	}
	for i := range f.Objects {
		if o := &f.Objects[i]; o.Namespace == namespace && o.Name == name {
			return f.answer(f.object(o, pods))
		}
	}
	return f.answer(f.unknown(key, namespace, name))
}

// answer joins chains; what is wrong with the agent comes first.
func (f Facts) answer(chains ...Chain) Answer {
	a := Answer{Fine: true, Chains: chains}
	says := func(c Chain) bool {
		return slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Reason == cause.RuntimeDown })
	}
	if f.Daemon != "" || !slices.ContainsFunc(chains, says) {
		a.Chains = slices.Concat(f.agent(), chains)
	}
	for _, c := range chains {
		a.Fine = a.Fine && c.Fine
	}
	a.Fine = a.Fine && f.Daemon == ""
	a.Text = chains[0].Text
	if len(chains) > 1 {
		a.Text = ofPods(chains)
	}
	return a
}

// workload answers about the pods of a Deployment and its like.
func (f Facts) workload(pods []Pod, namespace, name string) []Chain {
	var chains []Chain
	for _, p := range pods {
		if p.Object.Namespace == namespace && slices.ContainsFunc(owners(p.Object), func(n string) bool { return n == name }) {
			chains = append(chains, f.pod(p))
		}
	}
	return chains
}

func owners(pod *corev1.Pod) []string {
	var names []string
	for _, o := range pod.OwnerReferences {
		names = append(names, o.Name)
	}
	return names
}

// named finds a name in a refused file.
func (f Facts) named(namespace, name string) *Object {
	for i := range f.Named {
		if o := &f.Named[i]; o.Name == name && o.Namespace == namespace && !isContent(o.Kind) {
			return o
		}
	}
	return nil
}

// isContent reports whether a kind holds what pods use, rather than pods.
func isContent(kind string) bool {
	return slices.Contains([]string{"ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "RuntimeClass", "PriorityClass", "Service", "Namespace"}, kind)
}

// onlyRefused is about a pod that only a refused file has.
func (f Facts) onlyRefused(key string, o *Object) Chain {
	c := Chain{Pod: key, Input: fileOf(o.Where), Text: fmt.Sprintf("%s does not run: its manifest was never accepted", key), Reason: cause.InputRefused}
	c.Steps = []Step{{Kind: Wanted, Text: o.Where}, {Kind: Runs, Text: "nothing"}}
	for i := range f.Inputs {
		if in, ok := f.input(&f.Inputs[i]); ok && in.Input == c.Input {
			c.Steps = append(c.Steps, in.Steps...)
			return c
		}
	}
	c.Steps = append(c.Steps, Step{Kind: Cause, Reason: cause.InputRefused, Text: "the file is refused"})
	return c
}

// chain is about a pod that cannot run here.
func (u Unfit) chain() Chain {
	key := u.Namespace + "/" + u.Name
	return Chain{Pod: key, Text: key + " does not run: this machine does not support it as written", Reason: cause.NotSupported, Steps: []Step{
		{Kind: Wanted, Text: "the API server has bound it to this machine"},
		{Kind: Runs, Text: "nothing"},
		{Kind: Cause, Reason: cause.NotSupported, Text: u.Text},
		{Kind: Next, Text: "nothing; other pods are not affected"},
		{Kind: Action, Text: "in the cluster, change the pod, or keep it off this machine with a taint or a node selector"},
	}}
}

// maxListed is how many inputs are named that do not have a pod.
const maxListed = 8

// unknown is about a name that no source defines.
func (f Facts) unknown(key, namespace, name string) Chain {
	c := Chain{Pod: key, Text: fmt.Sprintf("no source defines a pod %s", key), Reason: cause.UnknownName}
	if f.Daemon != "" && len(f.Inputs) == 0 { // nobody could be asked, and nothing was found on the disk
		c.Text, c.Reason = fmt.Sprintf("%s is unknown: %s", key, f.silence()), cause.DaemonDown
		c.Steps = []Step{{Kind: Cause, Reason: cause.DaemonDown, Text: "no readable manifest on disk defines it"}}
		return c
	}
	step := Step{Kind: Cause, Reason: cause.UnknownName, Text: "no manifest with that name has been read"}
	for i := range f.Inputs {
		if in := &f.Inputs[i]; in.State != model.InputIgnored {
			step.Text = "it is defined in none of these:"
			if len(step.Lines) == maxListed {
				step.Lines = append(step.Lines, "and more; see `monopod get sources`")
				break
			}
			step.Lines = append(step.Lines, fmt.Sprintf("%s (%s)", in.Input, strings.ToLower(string(in.State))))
		}
	}
	c.Steps = append(c.Steps, step)
	if len(f.Pods) == 0 && f.Runtime != "" {
		c.Steps = append(c.Steps, Step{Kind: Cause, Reason: cause.RuntimeDown, Text: "the runtime does not respond, so more pods may exist: " + oneLine(f.Runtime)})
	}
	for _, text := range f.guesses(namespace, name) {
		c.Steps = append(c.Steps, Step{Kind: Action, Text: text})
	}
	return c
}

// guesses are suggestions for a name that does not exist.
func (f Facts) guesses(namespace, name string) []string {
	var here, everywhere []string
	for _, p := range sortedPods(f.Pods) {
		if p.Object.Name == name {
			return []string{fmt.Sprintf("did you mean %s? Run: monopod why -n %s %s", p.key(), p.Object.Namespace, name)}
		}
		for _, n := range append([]string{p.Object.Name}, owners(p.Object)...) {
			everywhere = append(everywhere, n)
			if p.Object.Namespace == namespace {
				here = append(here, n)
			}
		}
	}
	for _, o := range f.Named {
		if !isContent(o.Kind) {
			if o.Name == name {
				return []string{fmt.Sprintf("did you mean %s/%s, defined in the refused %s? Run: monopod why -n %s %s", o.Namespace, name, fileOf(o.Where), o.Namespace, name)}
			}
			here = append(here, o.Name)
		}
	}
	if guess := cmp.Or(explain.Nearest(name, here), explain.Nearest(name, everywhere)); guess != "" {
		return []string{fmt.Sprintf("did you mean %s?", guess)}
	}
	out := []string{"list existing pods with `monopod get pods`"}
	for i := range f.Inputs {
		if in := &f.Inputs[i]; in.State == model.InputIgnored && strings.Contains(in.Input, name) {
			return []string{fmt.Sprintf("%s is ignored: %s", in.Input, strings.Join(in.Errors, "; "))}
		}
	}
	if f.Places.Manifests != "" {
		out = append(out, "to create it, put a manifest into "+f.Places.Manifests)
	}
	return out
}

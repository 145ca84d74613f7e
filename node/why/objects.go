package why

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/cause"
)

// ofPods sums up the chains of several pods.
func ofPods(chains []Chain) string {
	bad := 0
	for i := range chains {
		if !chains[i].Fine {
			bad++
		}
	}
	if bad == 0 {
		return "all is fine: " + countPods(len(chains))
	}
	return fmt.Sprintf("%d of %s %s not fine", bad, countPods(len(chains)), isAre(bad))
}

// object explains an object that is no pod and for which no pod is known.
func (f Facts) object(o *Object, pods []Pod) Chain {
	c := o.chain(pods)
	if f.Daemon == "" || o.Kind == "Service" || isContent(o.Kind) {
		return c
	}
	c.Text, c.Fine, c.Reason = fmt.Sprintf("the pods of %s %s are unknown: %s", o.Kind, c.Pod, f.silence()), false, cause.DaemonDown
	c.Steps = append(c.Steps[:1], Step{Kind: Cause, Reason: cause.DaemonDown, Text: "only a running monopod knows which pods it has now"})
	return c
}

// chain is about an object that is no pod and for which no pod was made.
func (o *Object) chain(pods []Pod) Chain {
	key := o.Namespace + "/" + o.Name
	c := Chain{Pod: key, Input: fileOf(o.Where), Fine: true, Steps: []Step{{Kind: Wanted, Text: o.Where}}}
	command := fmt.Sprintf("`monopod describe %s/%s -n %s`", strings.ToLower(o.Kind), o.Name, o.Namespace)
	switch {
	case o.Kind == "CronJob":
		c.Text = fmt.Sprintf("%s is a CronJob and has no pods now", key)
		c.Steps = append(c.Steps, Step{Kind: Next, Text: command + " shows its next run"})
	case o.Kind == "Service":
		var selected []string
		for _, p := range pods {
			if p.Object.Namespace == o.Namespace && len(o.Selector) > 0 && labels.SelectorFromSet(o.Selector).Matches(labels.Set(p.Object.Labels)) {
				selected = append(selected, fmt.Sprintf("`monopod why -n %s %s`", o.Namespace, p.Object.Name))
			}
		}
		c.Text = fmt.Sprintf("%s is a Service that selects %s", key, countPods(len(selected)))
		for _, s := range selected[:min(len(selected), maxListed)] {
			c.Steps = append(c.Steps, Step{Kind: Action, Text: s})
		}
	case isContent(o.Kind):
		c.Text = fmt.Sprintf("%s is a %s; it has no pods", key, o.Kind)
		c.Steps = append(c.Steps, Step{Kind: Action, Text: command + " shows it"})
	default:
		c.Text = fmt.Sprintf("%s is a %s and has no pods now", key, o.Kind)
		c.Steps = append(c.Steps, Step{Kind: Action, Text: command + " shows its desired replicas and their state"})
	}
	return c
}

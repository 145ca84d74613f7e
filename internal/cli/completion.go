package cli

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cli/attach"
	"monopod/internal/objects"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// completionPatience is the maximum time that a shell waits for a completion.
const completionPatience = 2 * time.Second

// completion requests the words that complete a command line from the daemon. Without a daemon it offers none, silently.
type completion struct{ p *program.Program }

// answers returns the possible words after args.
type answers func(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string

// AddCompletion completes pods, containers, ports, namespaces and images.
func (p Commands) AddCompletion(root *cobra.Command) {
	k := completion{p.Program}
	of := map[string]answers{
		"exec": first(knownObjects), "attach": first(knownObjects), "logs": behind(first(knownObjects), knownContainers), "port-forward": behind(first(knownObjects), knownPorts),
		"wait": knownObjects, "why": first(knownPods), "events": first(knownPods), "describe": anyKind(knownObjects), "history": kindsOf("pod"), "rollback": kindsOf("pod"), "diff": kindsOf("pod"),
		"get": anyKind(fixed(program.KindWords()...)), "scale": first(knownObjects), "restart": first(knownObjects), "top": kindsOf("pods", "containers", "node"), "delete": anyKind(fixed(program.Plurals()...)), "pull": knownImages,
	}
	for _, cmd := range root.Commands() {
		if w := of[cmd.Name()]; w != nil {
			cmd.ValidArgsFunction = k.function(w, cobra.ShellCompDirectiveNoFileComp)
		}
		if cmd.Name() == "cp" {
			cmd.ValidArgsFunction = k.function(knownPlaces, cobra.ShellCompDirectiveNoSpace)
		}
		for flag, w := range map[string]answers{"namespace": knownNamespaces, "container": knownContainers, "sort-by": fixed("cpu", "memory")} {
			if cmd.Flags().Lookup(flag) != nil && cmd.Flags().Lookup("socket") != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, k.function(w, cobra.ShellCompDirectiveNoFileComp)) // each once
			}
		}
	}
}

// function requests words from a daemon.
func (k completion) function(w answers, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var o program.ClientFlags
		o.Socket, _ = cmd.Flags().GetString("socket")
		o.Namespace, _ = cmd.Flags().GetString("namespace")
		quiet := *k.p
		quiet.Stderr = io.Discard
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		all := w(ctx, quiet.Client(&o), o, args)
		all = slices.DeleteFunc(slices.Clone(all), func(word string) bool { return !strings.HasPrefix(word, begun) || !printer.IsPlain(word) })
		return all, directive
	}
}

// first completes only the first argument.
func first(w answers) answers {
	return func(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
		if len(args) > 0 {
			return nil
		}
		return w(ctx, c, o, args)
	}
}

// behind completes the first argument with head and the others with rest.
func behind(head, rest answers) answers {
	return func(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
		if len(args) == 0 {
			return head(ctx, c, o, args)
		}
		return rest(ctx, c, o, args)
	}
}

func fixed(all ...string) answers {
	return func(context.Context, *localclient.Client, program.ClientFlags, []string) []string { return all }
}

// kindsOf completes the first argument with these kinds, and the next one with pods if the kind is pods.
func kindsOf(all ...string) answers {
	return behind(fixed(all...), func(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
		if len(args) > 1 || !program.IsPodWord(args[0]) && args[0] != "containers" {
			return nil
		}
		return knownPods(ctx, c, o, args[1:])
	})
}

// anyKind completes the first argument with head; after a kind it offers names of its objects, after KIND/NAME more of those.
func anyKind(head answers) answers {
	return func(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
		if len(args) == 0 {
			return head(ctx, c, o, nil)
		}
		kind, _, ok := objects.Find(args[0])
		switch {
		case strings.Contains(args[0], "/"):
			return knownObjects(ctx, c, o, args)
		case !ok:
			return nil
		case kind == "Pod":
			return knownPods(ctx, c, o, args[1:])
		}
		var all []string
		for _, i := range objectsOf(ctx, c, o, kind) {
			name := nameOf(o, i)
			if !slices.Contains(args[1:], name) {
				all = append(all, name)
			}
		}
		return all
	}
}

// knownObjects returns pods, and workloads and Services as KIND/NAME, that are not in args.
func knownObjects(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
	all := knownPods(ctx, c, o, args)
	for _, i := range objectsOf(ctx, c, o, "") {
		word := strings.ToLower(i.Kind) + "/" + nameOf(o, i)
		if slices.Contains(objects.InAll(), i.Kind) && !slices.Contains(args, word) {
			all = append(all, word)
		}
	}
	return all
}

// nameOf returns the name of an object as users write it: without its namespace if that is the selected one.
func nameOf(o program.ClientFlags, i objects.Item) string {
	name := i.Object.GetName()
	if ns := i.Object.GetNamespace(); o.Namespace == "" && ns != "" && ns != "default" {
		name = ns + "/" + name
	}
	return name
}

// objectsOf returns the objects of a kind; empty means of all kinds.
func objectsOf(ctx context.Context, c *localclient.Client, o program.ClientFlags, kind string) []objects.Item {
	found, err := c.Objects(ctx, localapi.ObjectQuery{Kind: kind, Namespace: o.Namespace})
	if err != nil {
		return nil
	}
	var all []objects.Item
	for _, raw := range found {
		if i, err := objects.Decode(raw); err == nil {
			all = append(all, i)
		}
	}
	return all
}

// knownPods returns the names of pods that are not in args, without the namespace if that is the selected one.
func knownPods(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
	list, err := c.Pods(ctx, o.Namespace)
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		name := list.Items[i].Name
		if o.Namespace == "" && list.Items[i].Namespace != "default" {
			name = list.Items[i].Namespace + "/" + name
		}
		if !slices.Contains(args, name) {
			names = append(names, name)
		}
	}
	return names
}

// knownPlaces returns pods to copy from or to; the shell completes files itself.
func knownPlaces(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
	if len(args) > 1 || len(args) == 1 && isPlace(args[0]) {
		return nil
	}
	var all []string
	for _, name := range knownPods(ctx, c, o, nil) {
		all = append(all, name+":")
	}
	return all
}

func isPlace(arg string) bool {
	_, _, remote := attach.SplitPlace(arg)
	return remote
}

// podOf returns the pod of the first argument that names one.
func podOf(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) *corev1.Pod {
	for _, arg := range args {
		if name, _, remote := attach.SplitPlace(arg); remote {
			arg = name
		}
		key, err := o.PodArg([]string{arg})
		if err != nil {
			continue
		}
		if pod, err := c.Pod(ctx, key.Namespace, key.Name); err == nil {
			return pod
		}
	}
	return nil
}

func knownContainers(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
	pod := podOf(ctx, c, o, args)
	if pod == nil || len(args) > 2 {
		return nil
	}
	return node.ContainerNames(pod)
}

// knownPorts returns the ports of a pod, by name if they have one.
func knownPorts(ctx context.Context, c *localclient.Client, o program.ClientFlags, args []string) []string {
	pod := podOf(ctx, c, o, args[:1])
	if pod == nil {
		return nil
	}
	var all []string
	for container := range manifests.LongRunningContainers(&pod.Spec) {
		for _, port := range container.Ports {
			text := cmp.Or(port.Name, strconv.Itoa(int(port.ContainerPort)))
			if (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) && !slices.Contains(args, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

func knownNamespaces(ctx context.Context, c *localclient.Client, _ program.ClientFlags, _ []string) []string {
	list, err := c.Pods(ctx, "")
	if err != nil {
		return nil
	}
	var all []string
	for i := range list.Items {
		all = append(all, list.Items[i].Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func knownImages(ctx context.Context, c *localclient.Client, _ program.ClientFlags, args []string) []string {
	list, err := c.Images(ctx)
	if err != nil {
		return nil
	}
	var all []string
	for i := range list.Items {
		for _, name := range list.Items[i].Names {
			if !slices.Contains(args, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

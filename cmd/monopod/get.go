package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/manifests"
	"monopod/node"
)

// getOptions are the flags of `get`.
type getOptions struct {
	clientFlags
	output        string
	watch         bool
	allNamespaces bool
}

func (p *program) getCommand() *cobra.Command {
	o := &getOptions{}
	cmd := &cobra.Command{
		Use:   "get pods|sources [NAME]",
		Short: "Show what runs, and where it is read from",
		Long: "`get pods` shows the pods of all namespaces, or those of one with -n. With NAME it shows one pod (of namespace\n" +
			"default, unless -n or NAMESPACE/NAME says otherwise). `-o json` is a v1 PodList, or a v1 Pod for a named one, with\n" +
			"the annotations monopod.dev/source, monopod.dev/why and monopod.dev/next-try added.\n\n" +
			"`get sources` shows each file, directory and URL that is read, whether it is accepted, and what is wrong with it.",
		Args: rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return p.get(cmd.Context(), o, args) },
	}
	o.add(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output `format`: wide, json, yaml or name")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on and show changes as they come")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces, which is the default without NAME")
	return cmd
}

func (p *program) get(ctx context.Context, o *getOptions, args []string) error {
	if err := oneOfOutputs(o.output, "wide", "json", "yaml", "name"); err != nil {
		return err
	}
	if o.allNamespaces {
		o.namespace = ""
	}
	c := p.client(&o.clientFlags)
	switch kind := args[0]; kind {
	case "source", "sources", "files", "inputs":
		if len(args) > 1 || o.watch {
			return usagef("get sources takes neither NAME nor --watch")
		}
		return p.getSources(ctx, c, o)
	default:
		if len(args) == 1 && isPodWord(kind) {
			return p.getPods(ctx, c, o)
		}
		if !isPodWord(kind) && len(args) == 1 && kind[:min(4, len(kind))] != "pod/" && kind[:min(5, len(kind))] != "pods/" {
			return usagef("monopod has no %q%s", kind, appendHint(didYouMean(kind, []string{"pods", "sources"})))
		}
		key, err := o.podArg(args)
		if err != nil {
			return err
		}
		return p.getPod(ctx, c, o, key)
	}
}

func (p *program) getPods(ctx context.Context, c *node.Client, o *getOptions) error {
	if o.watch {
		return p.watchPods(ctx, c, o, manifests.Key{Namespace: o.namespace})
	}
	list, err := c.Pods(ctx, o.namespace)
	if err != nil {
		return err
	}
	switch o.output {
	case "json", "yaml":
		return p.printObject(list, o.output)
	}
	p.printPods(list.Items, o.output)
	if o.output == "name" {
		return nil
	}
	if len(list.Items) == 0 {
		p.errs().Println("No pods found.")
	}
	inputs, err := c.Inputs(ctx)
	if err != nil {
		return err
	}
	p.printProblems(inputs)
	p.printSchedule(ctx, c)
	return nil
}

func (p *program) getPod(ctx context.Context, c *node.Client, o *getOptions, key manifests.Key) error {
	if o.watch {
		return p.watchPods(ctx, c, o, key)
	}
	pod, err := findPod(ctx, c, key)
	if err != nil {
		return err
	}
	if o.output == "json" || o.output == "yaml" {
		return p.printObject(pod, o.output)
	}
	p.printPods([]corev1.Pod{*pod}, o.output)
	return nil
}

// findPod returns the pod. When it does not exist, the error says where else a pod of that name is, or
// that something could not be read.
func findPod(ctx context.Context, c *node.Client, key manifests.Key) (*corev1.Pod, error) {
	pod, err := c.Pod(ctx, key.Namespace, key.Name)
	if !apierrors.IsNotFound(err) {
		return pod, err
	}
	hint := ""
	if list, listErr := c.Pods(ctx, ""); listErr == nil {
		var all []manifests.Key
		for i := range list.Items {
			all = append(all, manifests.Key{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
		}
		hint = notFoundHint(all, key)
	}
	if inputs, inErr := c.Inputs(ctx); inErr == nil && hint == "" && slices.ContainsFunc(inputs, isProblem) {
		hint = "; not all inputs could be read, see `monopod get sources`"
	}
	return nil, fmt.Errorf("pod %q not found in namespace %q%s", key.Name, key.Namespace, hint)
}

func (p *program) printPods(pods []corev1.Pod, output string) {
	now := time.Now()
	if output == "name" {
		for i := range pods {
			p.out().Println("pod/" + pods[i].Name)
		}
		return
	}
	if len(pods) == 0 {
		return
	}
	t := p.table()
	rows := [][]string{podHeader().cells(output == "wide")}
	for i := range pods {
		rows = append(rows, rowOf(&pods[i], now).cells(output == "wide"))
	}
	t.printAll(rows)
}

// watchPods prints a line, or an object, for each pod and each change.
func (p *program) watchPods(ctx context.Context, c *node.Client, o *getOptions, key manifests.Key) error {
	t := p.table()
	header := false
	return c.Watch(ctx, key.Namespace, key.Name, func(e node.PodEvent) error {
		switch o.output {
		case "json":
			return p.printObject(e.Object, "json")
		case "yaml":
			p.out().Println("---")
			return p.printObject(e.Object, "yaml")
		case "name":
			p.out().Println("pod/" + e.Object.Name)
			return nil
		}
		row := rowOf(&e.Object, time.Now())
		if e.Type == "DELETED" {
			row.status = "Deleted"
		}
		cells := row.cells(o.output == "wide")
		if !header {
			t.fit(cells)
			t.print(podHeader().cells(o.output == "wide"))
			header = true
		}
		t.print(cells)
		return nil
	})
}

func isProblem(i node.Input) bool {
	return i.State != "Accepted" && i.State != "Ignored"
}

// printProblems lists the inputs that are not as somebody meant them, on stderr.
func (p *program) printProblems(inputs []node.Input) {
	first := true
	for _, i := range inputs {
		if !isProblem(i) {
			continue
		}
		if first {
			p.errs().Printf("\nInputs with problems (see `monopod get sources`):\n")
			first = false
		}
		text := i.Input
		switch {
		case len(i.Errors) > 0 && strings.HasPrefix(i.Errors[0], i.Input+":"):
			text = i.Errors[0]
		case len(i.Errors) > 0:
			text += ": " + i.Errors[0]
		}
		p.errs().Printf("  %s %s\n", i.State, text)
	}
}

func (p *program) getSources(ctx context.Context, c *node.Client, o *getOptions) error {
	inputs, err := c.Inputs(ctx)
	if err != nil {
		return err
	}
	if inputs == nil {
		inputs = []node.Input{}
	}
	switch o.output {
	case "json", "yaml":
		return p.printObject(inputs, o.output)
	case "name":
		for _, i := range inputs {
			p.out().Println(i.Input)
		}
		return nil
	}
	if len(inputs) == 0 {
		p.errs().Println("No sources found.")
		return nil
	}
	now := time.Now()
	t := p.table()
	rows := [][]string{{"SOURCE", "STATE", "AGE", "PODS", "INPUT"}}
	for _, i := range inputs {
		rows = append(rows, []string{i.Source, i.State, sinceText(i.Since, now), strconv.Itoa(len(i.Pods)), i.Input})
	}
	for _, r := range rows {
		t.fit(r)
	}
	t.print(rows[0])
	for n, i := range inputs {
		t.print(rows[n+1])
		for _, e := range i.Errors {
			p.out().Println("    " + e)
		}
	}
	return nil
}

func sinceText(since, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}

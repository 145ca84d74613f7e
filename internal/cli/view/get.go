package view

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/internal/cli/describe"
	"monopod/internal/cli/lookup"
	"monopod/internal/model"
	"monopod/internal/objects"
	"monopod/internal/podtable"
	"monopod/internal/printer"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node/localclient"
)

// GetOptions are the flags of `get`.
type GetOptions struct {
	program.ClientFlags
	output        string
	watch         bool
	allNamespaces bool
	noHeaders     bool
	selector      string

	// out and chosen are the parsed output format and selector.
	out    output
	Chosen labels.Selector
}

// GetCommand returns `monopod get`.
func (p Commands) GetCommand() *cobra.Command {
	o := &GetOptions{}
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND...] [NAME...] | KIND/NAME...",
		Short: "List pods, other objects or sources",
		Long: "KIND is any kind that manifests may have, or sources, events, nodes or all; short names are those of kubectl (po, deploy, rs, sts, ds, cj, svc, cm, " +
			"no, ev). Secrets are shown without values. Lists cover all namespaces, or one with -n; a NAME is in namespace default unless -n or NAMESPACE/NAME says " +
			"otherwise.\n\n" +
			"`get sources` shows each file, directory and URL, whether it is accepted, and its errors.\n\n" +
			"The columns of objects besides pods are those of kubectl; `-o wide` adds SOURCE.\n\n" +
			"`-o json` is a v1 PodList or List, or the object itself for a single name; objects have the annotation monopod.dev/source, pods also monopod.dev/why " +
			"and monopod.dev/next-try.",
		Example: "monopod get pods -w\nmonopod get deploy,svc -n shop\nmonopod get pods -l app=web -o jsonpath='{.items[*].status.podIP}'",
		Args:    program.RangeArgs(1, 1000),
		RunE:    func(cmd *cobra.Command, args []string) error { return p.get(cmd.Context(), o, args) },
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output `format`: wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,...")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "select by `labels`: app=web,tier!=db or 'app in (a,b)'")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "omit the column titles")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show changes of pods or events until interrupted")
	cmd.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all namespaces (default without NAME)")
	return cmd
}

func (p Commands) get(ctx context.Context, o *GetOptions, args []string) (err error) {
	if o.out, err = parseOutput(o.output); err != nil {
		return err
	}
	if o.Chosen, err = lookup.ParseSelector(o.selector); err != nil {
		return err
	}
	if o.allNamespaces {
		o.Namespace = ""
	}
	c := p.Client(&o.ClientFlags)
	switch args[0] {
	case "source", "sources", "files", "inputs":
		if len(args) > 1 || o.watch || o.selector != "" {
			return program.Usagef("get sources takes neither NAME nor --watch nor -l")
		}
		return p.getSources(ctx, c, o)
	}
	all, err := o.wanted(args)
	if err != nil {
		return err
	}
	return p.getWanted(ctx, c, o, all)
}

// getWanted prints objects: pods and events in formats of their own, the others from a list of all kinds.
func (p Commands) getWanted(ctx context.Context, c *localclient.Client, o *GetOptions, all []wantedObjects) error {
	w := all[0]
	simple := o.out.format == "" || slices.Contains([]string{"wide", "json", "yaml", "name"}, o.out.format)
	switch {
	case len(all) == 1 && w.kind == objects.Event && len(w.keys) == 0 && simple && o.out.format != "name" && o.selector == "":
		format := strings.TrimPrefix(o.output, "wide")
		return describe.NewCommands(p.Program).Events(ctx, &describe.EventsOptions{ClientFlags: o.ClientFlags, Output: format, Watch: o.watch, NoHeaders: o.noHeaders}, nil)
	case slices.ContainsFunc(all, func(w wantedObjects) bool { return w.kind == objects.Event }):
		return program.Usagef("get events takes neither names, other kinds, -l nor this output; see `monopod events POD`")
	case len(all) == 1 && w.kind == "Pod" && len(w.keys) == 0 && simple:
		return p.getPods(ctx, c, o)
	case len(all) == 1 && w.kind == "Pod" && len(w.keys) == 1 && simple && o.selector == "":
		return p.getPod(ctx, c, o, w.keys[0])
	case o.selector != "" && slices.ContainsFunc(all, func(w wantedObjects) bool { return len(w.keys) > 0 }):
		return program.Usagef("give names or -l, not both")
	}
	return p.getObjects(ctx, c, o, all)
}

func (p Commands) getPods(ctx context.Context, c *localclient.Client, o *GetOptions) error {
	if o.watch {
		return p.watchPods(ctx, c, o, manifests.Key{Namespace: o.Namespace})
	}
	list, err := c.Pods(ctx, o.Namespace)
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !o.Chosen.Matches(labels.Set(pod.Labels)) })
	switch o.output {
	case "json", "yaml":
		return p.PrintObject(list, o.output)
	}
	p.printPods(list.Items, o)
	if o.output == "name" {
		return nil
	}
	if len(list.Items) == 0 {
		p.Errs().Println("No pods found.")
	}
	inputs, err := c.Inputs(ctx)
	if err != nil {
		return err
	}
	p.printProblems(inputs)
	p.printSchedule(ctx, c)
	return nil
}

func (p Commands) getPod(ctx context.Context, c *localclient.Client, o *GetOptions, key manifests.Key) error {
	if o.watch {
		return p.watchPods(ctx, c, o, key)
	}
	pod, err := lookup.FindPod(ctx, c, key)
	if err != nil {
		return err
	}
	if o.output == "json" || o.output == "yaml" {
		return p.PrintObject(pod, o.output)
	}
	p.printPods([]corev1.Pod{*pod}, o)
	return nil
}

func (p Commands) printPods(pods []corev1.Pod, o *GetOptions) {
	output, now := o.output, time.Now()
	if output == "name" {
		for i := range pods {
			p.Out().Println("pod/" + pods[i].Name)
		}
		return
	}
	if len(pods) == 0 {
		return
	}
	t := p.Table()
	rows := [][]string{podtable.PodHeader().Cells(output == "wide")}
	if o.noHeaders {
		rows = nil
	}
	for i := range pods {
		rows = append(rows, podtable.RowOf(&pods[i], now).Cells(output == "wide"))
	}
	t.PrintAll(rows)
}

// watchPods prints a line, or an object, for each pod and each change.
func (p Commands) watchPods(ctx context.Context, c *localclient.Client, o *GetOptions, key manifests.Key) error {
	t := p.Table()
	header := false
	return c.Watch(ctx, key.Namespace, key.Name, func(e localclient.PodEvent) error {
		if !o.Chosen.Matches(labels.Set(e.Object.Labels)) {
			return nil
		}
		switch o.output {
		case "json":
			return p.PrintObject(e.Object, "json")
		case "yaml":
			p.Out().Println("---")
			return p.PrintObject(e.Object, "yaml")
		case "name":
			p.Out().Println("pod/" + e.Object.Name)
			return nil
		}
		row := podtable.RowOf(&e.Object, time.Now())
		if e.Type == "DELETED" {
			row.Status = "Deleted"
		}
		cells := row.Cells(o.output == "wide")
		if !header && !o.noHeaders {
			t.Fit(cells)
			t.Print(podtable.PodHeader().Cells(o.output == "wide"))
			header = true
		}
		t.Print(cells)
		return nil
	})
}

// printProblems lists inputs with problems on stderr.
func (p Commands) printProblems(inputs []model.Input) {
	first := true
	for _, i := range inputs {
		if !lookup.IsProblem(i) {
			continue
		}
		if first {
			p.Errs().Printf("\nInputs with problems (see `monopod get sources`):\n")
			first = false
		}
		text := i.Input
		if len(i.Errors) > 0 {
			text = printer.About(i.Input, i.Errors[0])
		}
		p.Errs().Printf("  %s %s\n", i.State, text)
	}
}

func (p Commands) getSources(ctx context.Context, c *localclient.Client, o *GetOptions) error {
	inputs, err := c.Inputs(ctx)
	if err != nil {
		return err
	}
	if inputs == nil {
		inputs = []model.Input{}
	}
	switch o.out.format {
	case "jsonpath", "custom-columns":
		return program.Usagef("get sources has no output %s; use -o json", o.out.format)
	case "json", "yaml":
		return p.PrintObject(inputs, o.output)
	case "name":
		for _, i := range inputs {
			p.Out().Println(i.Input)
		}
		return nil
	}
	if len(inputs) == 0 {
		p.Errs().Println("No sources found.")
		return nil
	}
	now := time.Now()
	t := p.Table()
	head := 1
	if o.noHeaders {
		head = 0
	}
	rows := [][]string{{"SOURCE", "STATE", "AGE", "PODS", "INPUT"}}
	for _, i := range inputs {
		rows = append(rows, []string{i.Source, string(i.State), SinceText(i.Since, now), strconv.Itoa(len(i.Pods)), i.Input})
	}
	for _, r := range rows {
		t.Fit(r)
	}
	for _, row := range rows[:head] {
		t.Print(row)
	}
	for n, i := range inputs {
		t.Print(rows[n+1])
		for _, e := range i.Errors {
			p.Out().Println("    " + e)
		}
	}
	return nil
}

// SinceText returns an age as shown in tables.
func SinceText(since, now time.Time) string {
	if since.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(since))
}

// printSchedule prints, on stderr, why pods are not started.
func (p Commands) printSchedule(ctx context.Context, c *localclient.Client) {
	s, err := c.Schedule(ctx)
	switch {
	case err != nil: // a daemon of an older release
	case s.ShuttingDown:
		p.Errs().Printf("\nThis machine is shutting down: pods are being stopped.\n")
	case s.Drained:
		p.Errs().Printf("\nThis machine is drained%s: `monopod undrain` lets pods run again.\n", sinceWhen(s.Since))
	case s.Cordoned:
		p.Errs().Printf("\nThis machine is cordoned%s: new pods wait for `monopod uncordon`.\n", sinceWhen(s.Since))
	}
}

func sinceWhen(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + t.Local().Format(time.RFC3339)
}

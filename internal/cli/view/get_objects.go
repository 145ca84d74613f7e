package view

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/internal/cli/lookup"
	"monopod/internal/objects"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// output is the value of -o of `get`.
type output struct {
	// format is wide, json, yaml, name, jsonpath or custom-columns; empty means a table.
	format  string
	path    objects.JSONPath
	columns objects.Columns
}

func parseOutput(text string) (output, error) {
	format, arg, has := strings.Cut(text, "=")
	o := output{format: format}
	var err error
	switch {
	case format == "jsonpath" && has:
		o.path, err = objects.ParseJSONPath(arg)
	case format == "custom-columns" && has:
		o.columns, err = objects.ParseColumns(arg)
	case format == "jsonpath" || format == "custom-columns":
		return o, program.Usagef("use -o %s=...", format)
	default:
		return output{format: text}, program.OneOfOutputs(text, "wide", "json", "yaml", "name", "jsonpath", "custom-columns")
	}
	if err != nil {
		return o, program.Usagef("%w", err)
	}
	return o, nil
}

// wantedObjects are objects named on the command line.
type wantedObjects struct {
	kind string
	// keys are the named objects; empty means all of the kind.
	keys []manifests.Key
}

// wanted parses "KIND[,KIND...] [NAME...]" or "KIND/NAME...".
func (o *GetOptions) wanted(args []string) ([]wantedObjects, error) {
	if strings.Contains(args[0], "/") {
		var all []wantedObjects
		for _, arg := range args {
			word, name, _ := strings.Cut(arg, "/")
			if _, _, known := objects.Find(word); !known || name == "" {
				return nil, program.Usagef("invalid %q; expected KIND/NAME", arg)
			}
			one, err := o.ObjectArg([]string{arg})
			if err != nil {
				return nil, err
			}
			all = append(all, wantedObjects{one.Kind, []manifests.Key{one.Key}})
		}
		return all, nil
	}
	var all []wantedObjects
	for word := range strings.SplitSeq(args[0], ",") {
		if word == "all" && len(args) > 1 {
			return nil, program.Usagef("get all takes no names")
		}
		if word == "all" {
			for _, kind := range objects.InAll() {
				all = append(all, wantedObjects{kind: kind})
			}
			continue
		}
		kind, _, known := objects.Find(word)
		if !known {
			return nil, program.UnknownKind(word)
		}
		w := wantedObjects{kind: kind}
		for _, name := range args[1:] {
			one, err := o.ObjectArg([]string{word, name})
			if err != nil {
				return nil, err
			}
			w.keys = append(w.keys, one.Key)
		}
		all = append(all, w)
	}
	return all, nil
}

// getObjects prints objects of any kind.
func (p Commands) getObjects(ctx context.Context, c *localclient.Client, o *GetOptions, all []wantedObjects) error {
	if o.watch {
		return program.Usagef("--watch shows pods or events only")
	}
	var items []objects.Item
	var missing []error
	for _, w := range all {
		found, lost, err := p.itemsOf(ctx, c, o, w)
		if err != nil {
			return err
		}
		items, missing = append(items, found...), append(missing, lost...)
	}
	single := len(all) == 1 && len(all[0].keys) == 1 && len(items) == 1
	if len(items) > 0 || len(missing) == 0 { // else an empty list would be printed
		if err := p.printItems(ctx, c, o, all, items, single); err != nil {
			return err
		}
	}
	for _, err := range missing {
		p.PrintError(err)
	}
	if len(missing) > 0 {
		return program.SilentError{}
	}
	return nil
}

// itemsOf requests the objects of one kind. missing are errors about names that do not exist.
func (p Commands) itemsOf(ctx context.Context, c *localclient.Client, o *GetOptions, w wantedObjects) (items []objects.Item, missing []error, err error) {
	if len(w.keys) == 0 {
		items, err = p.ListItems(ctx, c, o, w.kind)
		return items, nil, err
	}
	for _, key := range w.keys {
		var item objects.Item
		var err error
		if w.kind == "Pod" {
			var pod *corev1.Pod
			if pod, err = lookup.FindPod(ctx, c, key); err == nil {
				item, err = podItem(pod)
			}
		} else {
			item, err = lookup.FindObject(ctx, c, program.Object{Kind: w.kind, Key: key})
		}
		if err != nil {
			missing = append(missing, err)
			continue
		}
		items = append(items, item)
	}
	return items, missing, nil
}

// ListItems returns the objects of a kind that the options select.
func (p Commands) ListItems(ctx context.Context, c *localclient.Client, o *GetOptions, kind string) ([]objects.Item, error) {
	var all []objects.Item
	switch kind {
	case "Pod":
		list, err := c.Pods(ctx, o.Namespace)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			item, err := podItem(&list.Items[i])
			if err != nil {
				return nil, err
			}
			all = append(all, item)
		}
	default:
		found, err := c.Objects(ctx, localapi.ObjectQuery{Kind: kind, Namespace: o.Namespace})
		if err != nil {
			return nil, err
		}
		for _, raw := range found {
			item, err := objects.Decode(raw)
			if err != nil {
				return nil, err
			}
			all = append(all, item)
		}
	}
	return slices.DeleteFunc(all, func(i objects.Item) bool { return !o.Chosen.Matches(labels.Set(i.Object.GetLabels())) }), nil
}

func podItem(pod *corev1.Pod) (objects.Item, error) {
	raw, err := json.Marshal(pod)
	return objects.Item{Kind: "Pod", Object: pod, Raw: raw}, err
}

// printItems prints in the requested format. single means that one object was named.
func (p Commands) printItems(ctx context.Context, c *localclient.Client, o *GetOptions, all []wantedObjects, items []objects.Item, single bool) error {
	raws := make([]json.RawMessage, 0, len(items))
	for _, i := range items {
		raws = append(raws, i.Raw)
	}
	var whole any = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": raws}
	if single {
		whole = items[0].Raw
	}
	switch o.out.format {
	case "json", "yaml":
		return p.PrintObject(whole, o.out.format)
	case "name":
		for _, i := range items {
			p.Out().Println(i.Name())
		}
		return nil
	case "jsonpath":
		raw, err := json.Marshal(whole)
		if err != nil {
			return err
		}
		text, err := o.out.path.Text(raw)
		if err != nil {
			return err
		}
		_, err = io.WriteString(p.Raw(), text) // its strings are escaped, its layout is that of the expression
		return err
	case "custom-columns":
		return p.printColumns(o, items)
	}
	return p.printTables(ctx, c, o, all, items)
}

func (p Commands) printColumns(o *GetOptions, items []objects.Item) error {
	var rows [][]string
	if !o.noHeaders {
		rows = append(rows, o.out.columns.Titles)
	}
	for _, i := range items {
		row, err := o.out.columns.Row(i.Raw)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	p.Table().PrintAll(rows)
	return nil
}

// printTables prints a table for each kind.
func (p Commands) printTables(ctx context.Context, c *localclient.Client, o *GetOptions, all []wantedObjects, items []objects.Item) (err error) {
	var kinds []string
	for _, w := range all {
		if !slices.Contains(kinds, w.kind) {
			kinds = append(kinds, w.kind)
		}
	}
	first := true
	for _, kind := range kinds {
		of := slices.DeleteFunc(slices.Clone(items), func(i objects.Item) bool { return i.Kind != kind })
		if len(of) == 0 {
			continue
		}
		var head []string
		var rows [][]string
		if kind == "Pod" {
			head, rows = podRows(of, o.out.format == "wide")
		} else if head, rows, err = objectRows(ctx, c, o, of); err != nil {
			return err
		}
		if at := slices.Index(head, "NAME"); at >= 0 && len(kinds) > 1 {
			for i := range rows {
				rows[i][at] = of[i].Name()
			}
		}
		if !o.noHeaders {
			rows = append([][]string{head}, rows...)
		}
		if !first && !o.noHeaders {
			p.Out().Println()
		}
		first = false
		p.Table().PrintAll(rows)
	}
	if named := slices.ContainsFunc(all, func(w wantedObjects) bool { return len(w.keys) > 0 }); len(items) == 0 && !named {
		what := "resources"
		if len(kinds) == 1 {
			what = program.Plural(kinds[0])
		}
		p.Errs().Printf("No %s found.\n", what)
	}
	return nil
}

func podRows(items []objects.Item, wide bool) (head []string, rows [][]string) {
	for _, i := range items {
		if pod, ok := i.Object.(*corev1.Pod); ok {
			rows = append(rows, podtable.RowOf(pod, time.Now()).Cells(wide))
		}
	}
	return podtable.PodHeader().Cells(wide), rows
}

// objectRows returns the columns of kubectl of objects of one kind besides pods, with their namespaces and, if wide, their sources.
func objectRows(ctx context.Context, c *localclient.Client, o *GetOptions, items []objects.Item) (head []string, rows [][]string, err error) {
	wide, namespaced, q := o.out.format == "wide", items[0].Object.GetNamespace() != "", localapi.ObjectQuery{Kind: items[0].Kind}
	if len(items) == 1 {
		q.Namespace, q.Name = items[0].Object.GetNamespace(), items[0].Object.GetName()
	}
	table, err := lookup.TableOf(ctx, c, q, wide)
	if err != nil {
		return nil, nil, err
	}
	for _, title := range table.Titles {
		head = append(head, strings.ToUpper(title))
	}
	for _, i := range items {
		cells := table.Rows[manifests.Key{Namespace: i.Object.GetNamespace(), Name: i.Object.GetName()}]
		if cells == nil { // it has just gone
			cells = append([]string{i.Object.GetName()}, make([]string, max(len(table.Titles)-1, 0))...)
		}
		if wide {
			cells = append(cells, cmp.Or(i.Object.GetAnnotations()[node.AnnotationSource], "<none>"))
		}
		if namespaced {
			cells = append([]string{i.Object.GetNamespace()}, cells...)
		}
		rows = append(rows, cells)
	}
	if wide {
		head = append(head, "SOURCE")
	}
	if namespaced {
		head = append([]string{"NAMESPACE"}, head...)
	}
	return head, rows, nil
}

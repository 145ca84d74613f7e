package lookup

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// Table has the columns that kubectl prints of objects of one kind.
type Table struct {
	Titles []string
	// Rows are the cells of each object, as many as Titles.
	Rows map[manifests.Key][]string
}

// TableOf asks for the table of objects of a kind; wide: with the columns of -o wide.
func TableOf(ctx context.Context, c *localclient.Client, q localapi.ObjectQuery, wide bool) (Table, error) {
	table, err := localclient.Table(ctx, c, q)
	if err != nil {
		return Table{}, err
	}
	t := Table{Rows: map[manifests.Key][]string{}}
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 || wide {
			t.Titles = append(t.Titles, column.Name)
		}
	}
	for _, row := range table.Rows {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &o); err != nil {
			return t, err
		}
		var cells []string
		for i, column := range table.ColumnDefinitions {
			if column.Priority == 0 || wide {
				cells = append(cells, cell(row.Cells, i))
			}
		}
		t.Rows[manifests.Key{Namespace: o.Namespace, Name: o.Name}] = cells
	}
	return t, nil
}

// cell returns the text of a cell that was decoded from JSON; empty if there is none.
func cell(cells []any, i int) string {
	if i >= len(cells) || cells[i] == nil {
		return ""
	}
	if n, ok := cells[i].(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(cells[i])
}

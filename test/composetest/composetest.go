// Package composetest reads compose files as Docker Compose does: by its own library, which knows each key.
package composetest

import (
	"context"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// Load merges files, the later over the former. Paths in them are of the first one's folder. An unknown
// key, a value of another type or a volume that is not declared is an error.
func Load(ctx context.Context, files ...string) (*types.Project, error) {
	folder, err := filepath.Abs(filepath.Dir(files[0]))
	if err != nil {
		return nil, err
	}
	details, err := loader.LoadConfigFiles(ctx, files, folder)
	if err != nil {
		return nil, err
	}
	return loader.LoadWithContext(ctx, *details, func(o *loader.Options) { o.SetProjectName("tried", true) })
}

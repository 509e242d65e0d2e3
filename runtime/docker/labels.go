package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/moby/moby/client"

	"github.com/trimtab/trimtab/runtime/engine"
)

const (
	maxImages       = 1024 // whose labels are remembered
	maxImageIDBytes = 256  // "sha256:" and 64 digits; other algorithms have more
)

// imageLabels are trimtab's own labels of images, by image ID; they never change.
type imageLabels struct {
	mu   sync.Mutex
	all  map[string]map[string]string
	lost string // the image that could not be looked at, as last logged
}

// ownLabels are those that who started a container gave it. Docker adds the image's, which
// anybody may have built: one of trimtab's that the image bears too asks for nothing. Of an image
// that cannot be looked at any such label may be.
func (e *Engine) ownLabels(ctx context.Context, imageID string, all map[string]string) map[string]string {
	ours := engine.OwnLabels(all)
	if e.opts.ImageLabels || len(ours) == 0 {
		return all
	}
	image, known := e.labelsOf(ctx, imageID)
	own := maps.Clone(all)
	for key, value := range ours {
		if is, ok := image[key]; !known || ok && is == value {
			delete(own, key)
		}
	}
	return own
}

func (e *Engine) labelsOf(ctx context.Context, imageID string) (labels map[string]string, known bool) {
	m := &e.images
	m.mu.Lock()
	labels, known = m.all[imageID]
	m.mu.Unlock()
	if known {
		return labels, true
	}
	image, err := e.imageOf(ctx, imageID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.lost != imageID {
			e.opts.Logger.Warn("an image cannot be looked at: labels of its containers ask for nothing", "image", fmt.Sprintf("%.128q", imageID), "error", err)
			m.lost = imageID
		}
		return nil, false
	}
	if image.Config != nil {
		labels = engine.OwnLabels(image.Config.Labels)
	}
	if m.all == nil || len(m.all) >= maxImages {
		m.all = map[string]map[string]string{}
	}
	m.all[imageID] = labels
	return labels, true
}

// imageOf asks for the image of an ID, which goes into a path: another word would ask for something else.
func (e *Engine) imageOf(ctx context.Context, imageID string) (image client.ImageInspectResult, err error) {
	if len(imageID) > maxImageIDBytes || strings.Trim(imageID, "0123456789abcdefghijklmnopqrstuvwxyz:") != "" {
		return image, errors.New("no engine of Docker's gives an image such an ID")
	}
	return e.client.ImageInspect(ctx, imageID)
}

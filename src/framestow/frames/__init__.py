"""One picture and a stack of pictures: shapes, packing, stacking, preprocessing."""

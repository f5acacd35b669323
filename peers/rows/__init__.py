"""Domain parallelism: the processes of a crew share the rows of each image, and exchange halos.

`split_rows` lets a plain model take a process's rows instead of whole images. Inside the model an activation is a
`RowTensor`: it has the shape of the whole, and holds the rows of this process. Every function of torch that the model
calls on it is looked up in a table: it runs on the rows alone, or with halos, or on gathered rows, or it is refused by
name. So a model is either computed as if images were whole, or not at all.
"""

from peers.rows.gathering import GatherRows, gather_rows
from peers.rows.row_parts import RowsError, row_range
from peers.rows.splitting import split_rows

__all__ = ["GatherRows", "RowsError", "gather_rows", "row_range", "split_rows"]

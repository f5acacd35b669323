"""Operations on numbers, block by block: copy, mix, check. And memory that is used again."""
